"""The program that represents a command that runs elsewhere."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from holdfast.tools.backends import relay

pytestmark = pytest.mark.process


def words(command: list[str], control: list[str], text: str) -> list[str]:
    spec = json.dumps({"command": command, "control": control, "workdir": "/"})
    return [sys.executable, "-I", "-S", relay.__file__, spec, "/bin/sh", "-c", text]


def run(command: list[str], control: list[str], text: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        words(command, control, text), capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL
    )


def test_a_command_ends_with_its_exit_code() -> None:
    done = run(["env"], ["env"], "echo here; exit 7")

    assert (done.returncode, done.stdout) == (7, "here\n")


def test_a_client_that_waits_for_a_lost_container_is_ended() -> None:
    done = run(["sh", "-c", "sleep 1000"], ["sh", "-c", "echo ready"], "true")

    assert done.returncode == 128 + 9
    assert "the container or the connection was lost" in done.stderr


def test_without_a_connection_nothing_is_run(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    done = run(["env"], ["false"], f"touch {mark}")

    assert done.returncode == relay.CANNOT_RUN
    assert not mark.exists()


def test_a_signal_after_the_end_of_the_command_does_not_change_its_exit_code(tmp_path: Path) -> None:
    """SIGCONT follows SIGTERM, which may have ended the command already."""
    ended = tmp_path / "ended"
    control = ["sh", "-c", f"echo ready; while read word; do :; done; touch {ended}; sleep 1"]
    relayed = subprocess.Popen(words(["env"], control, "exit 3"), stderr=subprocess.PIPE, stdin=subprocess.DEVNULL)
    while not ended.exists():
        time.sleep(0.01)
    relayed.send_signal(signal.SIGCONT)
    errors = relayed.communicate()[1]

    assert (relayed.returncode, errors) == (3, b"")
