"""Signals to a chat whose input is a pipe that stays open: it quits, and its session is ended."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.api.serving import write_config
from tests.crash.programs import Process

INTERRUPTED = 130


def chat(home: Path) -> Process:
    return Process(sys.executable, "-m", "holdfast", "--home", str(home), "chat")


def only_session(home: Path) -> dict[str, object]:
    command = [sys.executable, "-m", "holdfast", "--home", str(home), "sessions", "list", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    [session] = json.loads(done.stdout)["sessions"]
    assert isinstance(session, dict)
    return session


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_between_turns_ends_the_session_and_the_chat(tmp_path: Path, number: signal.Signals) -> None:
    write_config(tmp_path / "home", alone="echo")
    with chat(tmp_path / "home") as process:
        process.send("hello")
        assert process.wait_for_output("You said: hello\n\n")
        process.signal(number)
        status = process.wait()

    session = only_session(tmp_path / "home")
    assert status == INTERRUPTED
    assert (session["state"], session["end_reason"]) == ("ended", "cli_close")
    assert "Traceback" not in process.stderr


def test_a_signal_before_the_first_message_ends_the_chat(tmp_path: Path) -> None:
    write_config(tmp_path / "home", alone="echo")
    with chat(tmp_path / "home") as process:
        assert process.wait_for_output("scripted:echo")
        process.signal(signal.SIGTERM)

        assert process.wait() == INTERRUPTED
    assert "Traceback" not in process.stderr


def test_an_interrupt_during_a_turn_ends_the_turn_the_session_and_the_chat(tmp_path: Path) -> None:
    write_config(tmp_path / "home", alone="dawdling")
    with chat(tmp_path / "home") as process:
        process.send("hello")
        assert process.wait_for_output("word1")
        process.signal(signal.SIGINT)
        status = process.wait()

    session = only_session(tmp_path / "home")
    assert status == INTERRUPTED
    assert "interrupted]" in process.stdout
    assert (session["state"], session["end_reason"]) == ("ended", "cli_close")


def test_sigterm_during_a_turn_leaves_the_turn_open_and_ends_the_chat(tmp_path: Path) -> None:
    write_config(tmp_path / "home", alone="dawdling")
    with chat(tmp_path / "home") as process:
        process.send("hello")
        assert process.wait_for_output("word1")
        process.signal(signal.SIGTERM)

        assert process.wait() == INTERRUPTED
    assert only_session(tmp_path / "home")["worker_id"] is None
