"""A worker is killed between the change of a rules file and its announcement, with real processes."""

import json
from pathlib import Path

import pytest

from tests.cli.conftest import ENVIRONMENT, Holdfast

pytestmark = pytest.mark.process

CHANGE = "echo 'Answer in prose.' > AGENTS.md; touch changed; sleep 5"
SCRIPT = {"steps": [{"call": [{"name": "terminal", "arguments": {"command": CHANGE}}]}, {"say": "yes"}], "loop": True}


def told(holdfast: Holdfast, session_id: str) -> list[str]:
    """The last line of the rules, each time that they were recorded."""
    events = holdfast("sessions", "show", session_id, "--events", "--json").json["events"]
    parts = [event["body"] for event in events if event["kind"] == "instructions_loaded"]
    return [event["text"].splitlines()[-1] for event in parts if event["part"] == "rules"]


def test_a_change_is_announced_after_a_kill_and_the_killed_turn_never_saw_it(
    holdfast: Holdfast, tmp_path: Path
) -> None:
    project = tmp_path / "project"
    project.mkdir()
    holdfast.home.mkdir(mode=0o700, exist_ok=True)
    (holdfast.home / "config.toml").write_text('[agent]\napprovals = "allow"\n')
    (project / "AGENTS.md").write_text("Answer in rhyme.\n")
    (tmp_path / "script.json").write_text(json.dumps(SCRIPT))
    environment = {**ENVIRONMENT, "HOLDFAST_MODEL": f"scripted:{tmp_path / 'script.json'}"}
    holdfast.kill_once_there(project / "changed", "run", "Go", "--key", "k", cwd=project, env=environment)
    (session,) = holdfast("sessions", "list", "--json").json["sessions"]
    assert told(holdfast, session["id"]) == ["Answer in rhyme."]

    ran = holdfast.process("run", "Again", "--key", "k", "--json", cwd=project, env=environment)

    assert ran.json["text"] == "yes"
    assert told(holdfast, session["id"]) == ["Answer in rhyme.", "Answer in prose."]
    assert holdfast("sessions", "verify").code == 0
