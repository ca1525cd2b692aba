"""Promise 33 for commands, with the program: settings, `kill -9` while a command runs, and prune."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import ENVIRONMENT, Holdfast
from tests.cli.seed import Seed
from tests.crash.programs import wait_until

MODEL = {**ENVIRONMENT, "HOLDFAST_MODEL": "scripted:tools"}
pytestmark = pytest.mark.crash


def use(command: str) -> str:
    return f"use tool terminal {json.dumps({'command': command})}"


@pytest.fixture
def work(tmp_path: Path, home: Path) -> Path:
    home.mkdir(mode=0o700)
    (home / "config.toml").write_text("[rewind]\nsnapshots = true\n")
    work = tmp_path / "work"
    work.mkdir()
    (work / "a.txt").write_text("one\n")
    return work


def newest(holdfast: Holdfast) -> str:
    return str(holdfast("sessions", "list", "--json").json["sessions"][0]["id"])


def rewind(holdfast: Holdfast, *words: str) -> dict[str, Any]:
    ran = holdfast("sessions", "rewind", newest(holdfast), "--json", *words)
    assert ran.code == 0, ran.err
    found: dict[str, Any] = ran.json
    return found


def test_a_command_goes_back_and_its_snapshots_are_deleted_with_the_session(
    holdfast: Holdfast, seed: Seed, work: Path
) -> None:
    holdfast.process("run", use("echo two > a.txt; echo new > b.txt"), env=MODEL, cwd=work)
    assert (work / "a.txt").read_text() == "two\n"

    rewind(holdfast, "--yes")

    assert (work / "a.txt").read_text() == "one\n"
    assert not (work / "b.txt").exists()
    session = newest(holdfast)
    snapshots = holdfast.home / "snapshots"
    assert [path.name for path in snapshots.iterdir()] == [session]
    assert snapshots.stat().st_mode & 0o777 == 0o700
    seed.trash(session, days_ago=40)
    assert holdfast("sessions", "prune", "--yes").code == 0
    assert list(snapshots.iterdir()) == []


def test_after_kill_9_in_a_command_its_changes_are_shown_and_restored_by_name(holdfast: Holdfast, work: Path) -> None:
    line = "echo two > a.txt; rm -f gone; touch flag; until [ -e end ]; do sleep 0.05; done"
    with subprocess.Popen(holdfast.command("run", use(line)), env=MODEL, cwd=work) as killed:
        wait_until((work / "flag").exists, "the command")
        killed.kill()
    (work / "end").touch()

    shown = rewind(holdfast, "--preview")

    assert "cut off" in shown["preview"] and "-two\n+one" in shown["preview"]
    assert (work / "a.txt").read_text() == "two\n"
    rewind(holdfast, "--yes", "--force", os.path.realpath(work / "a.txt"))
    assert (work / "a.txt").read_text() == "one\n"
    assert (work / "end").exists(), "it is in conflict and was not forced"
