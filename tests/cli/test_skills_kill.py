"""A worker is killed after it has loaded a skill, which then changes, with real processes."""

import json
from pathlib import Path

import pytest

from tests.cli.conftest import ENVIRONMENT, Holdfast

pytestmark = pytest.mark.process

LOAD = {"call": [{"name": "skill", "arguments": {"name": "forms"}}]}
WAIT = {"call": [{"name": "terminal", "arguments": {"command": "touch loaded; sleep 5"}}]}
STEPS = [LOAD, WAIT, LOAD, {"say": "yes"}]


def write_skill(folder: Path, ink: str) -> Path:
    skill = folder / "forms"
    skill.mkdir(exist_ok=True, parents=True)
    (skill / "SKILL.md").write_text(f"---\nname: forms\ndescription: Fills forms.\n---\nUse {ink} ink.\n")
    (skill / "fill.sh").write_text(f"echo {ink}")
    return skill


def bodies(holdfast: Holdfast, session_id: str, kind: str) -> list[dict[str, object]]:
    events = holdfast("sessions", "show", session_id, "--events", "--json").json["events"]
    return [event["body"] for event in events if event["kind"] == kind]


def test_what_was_loaded_before_a_kill_stays_and_the_change_reaches_the_next_turn(
    holdfast: Holdfast, tmp_path: Path
) -> None:
    project = tmp_path / "project"
    project.mkdir()
    assert holdfast("skills", "add", str(write_skill(tmp_path, "black"))).code == 0
    (tmp_path / "script.json").write_text(json.dumps({"steps": STEPS}))
    environment = {**ENVIRONMENT, "HOLDFAST_MODEL": f"scripted:{tmp_path / 'script.json'}"}
    holdfast.kill_once_there(project / "loaded", "run", "Go", "--key", "k", cwd=project, env=environment)
    holdfast("skills", "add", str(write_skill(tmp_path, "blue")), "--force")
    (session,) = holdfast("sessions", "list", "--json").json["sessions"]

    ran = holdfast.process("run", "Again", "--key", "k", "--json", cwd=project, env=environment)

    assert ran.json["text"] == "yes"
    parts = [one for one in bodies(holdfast, session["id"], "instructions_loaded") if one["part"] == "skills"]
    assert [one["notices"] for one in parts] == [["forms"], ["forms was changed; it applies from this turn on"]]
    results = [one for one in bodies(holdfast, session["id"], "tool_ended") if one["name"] == "skill"]
    texts = [str(one["parts"]) for one in results]
    assert ["black" in text for text in texts] == [True, False] and "Use blue ink." in texts[1]
    copies = sorted((holdfast.home / "files" / session["id"] / "skills").iterdir())
    assert sorted((copy / "fill.sh").read_text() for copy in copies) == ["echo black", "echo blue"]
    assert holdfast("sessions", "verify").code == 0
