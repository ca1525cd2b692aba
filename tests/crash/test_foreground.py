"""A foreground command that outlives its worker is reported as still running, and can be reached as a process."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.api import native_client
from tests.api.native_client import begin, say, wait_for_end
from tests.api.serving import Server
from tests.crash.programs import wait_until


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Server]:
    with Server(tmp_path / "home") as running:
        yield running


def holdfast(own: Server, *words: str) -> str:
    command = [sys.executable, "-m", "holdfast", "--home", str(own.home), *words]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout


def has_ended(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def killed_while(own: Server, command: str) -> tuple[str, str]:
    """A session whose server was killed while a command ran, and its turn."""
    mark = own.home.parent / "runs"
    call = {"call": [{"name": "terminal", "arguments": {"command": f"touch {mark}; {command}"}}]}
    (own.home / "asks.json").write_text(json.dumps({"steps": [call, {"say": "I see."}]}))
    (own.home / "config.toml").write_text(
        (own.home / "config.toml").read_text().replace("[agent]", '[agent]\napprovals = "allow"')
    )
    own.kill()
    own.restart()
    with native_client.client(own) as http:
        session_id = begin(http, model=own.model("asks"))
        turn_id = say(http, session_id, "Go")
        wait_until(mark.exists, "the command runs")
    own.kill()
    return session_id, turn_id


def result_of(own: Server, session_id: str, turn_id: str) -> str:
    """Wait for the end of the turn; return the result of the call that the model got."""
    own.restart()
    with native_client.client(own) as http:
        turn = wait_for_end(http, session_id, turn_id)
    assert turn["state"] == "done"
    [told] = [message for message in turn["messages"] if message["role"] == "tool"]
    assert told["outcome"] == "unknown"
    return str(told["content"])


@pytest.mark.crash
@pytest.mark.timeout(180)
def test_a_command_that_outlives_its_killed_server_is_reported_and_can_be_ended(own: Server) -> None:
    told = result_of(own, *killed_while(own, "sleep 300"))

    [process] = json.loads(holdfast(own, "ps", "--json"))["processes"]
    assert f"still running as process {process['id']} (pid {process['pid']})" in told
    assert "sleep 300" in process["command"]
    assert not has_ended(process["pid"])
    holdfast(own, "ps", "kill", process["id"])
    wait_until(lambda: has_ended(process["pid"]), "the command is ended")
    assert json.loads(holdfast(own, "ps", "--json"))["processes"] == []
    assert not list((own.home / "processes" / "foreground").iterdir())


@pytest.mark.crash
@pytest.mark.timeout(180)
def test_a_command_that_ended_with_its_killed_server_is_not_reported_as_running(own: Server) -> None:
    gone = own.home.parent / "gone"
    left = killed_while(own, f"sleep 0.5; touch {gone}")
    wait_until(gone.exists, "the command has ended")

    assert "still running" not in result_of(own, *left)
    assert json.loads(holdfast(own, "ps", "--json"))["processes"] == []
    assert not list((own.home / "processes" / "foreground").iterdir())


@pytest.mark.timeout(120)
def test_a_command_that_ends_normally_leaves_no_record(own: Server) -> None:
    call = {"call": [{"name": "terminal", "arguments": {"command": "sleep 0.5; echo hello"}}]}
    (own.home / "asks.json").write_text(json.dumps({"steps": [call, {"say": "Done."}]}))
    with native_client.client(own) as http:
        session_id = begin(http, model=own.model("asks"))
        assert wait_for_end(http, session_id, say(http, session_id, "Go"))["state"] == "done"

    assert not list((own.home / "processes" / "foreground").iterdir())
