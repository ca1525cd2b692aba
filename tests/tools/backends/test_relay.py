"""The program that represents a command that runs elsewhere."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.tools.backends import relay

pytestmark = pytest.mark.process


def run(command: list[str], control: list[str], text: str) -> "subprocess.CompletedProcess[str]":
    spec = json.dumps({"command": command, "control": control, "workdir": "/"})
    words = [sys.executable, "-I", "-S", relay.__file__, spec, "/bin/sh", "-c", text]
    return subprocess.run(words, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)


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
