"""`holdfast run` with a pipe, and without a user who could answer."""

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.api.serving import write_config
from tests.cli.chats import newest
from tests.cli.conftest import ENVIRONMENT, Holdfast
from tests.cli.terminal import Terminal
from tests.crash.programs import Process

pytestmark = pytest.mark.process

MODEL = "scripted:{}/home/asks.json"
ECHO = {**ENVIRONMENT, "HOLDFAST_MODEL": "scripted:echo"}


def run(home: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "holdfast", "--home", str(home), "run", *words]
    return subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)


def test_piped_text_is_appended_to_the_prompt(holdfast: Holdfast) -> None:
    ran = holdfast.process("run", "Summarize", env=ECHO, input=b"the text of a file")

    assert ran.code == 0
    assert ran.out == "You said: Summarize\n\n[standard input]\nthe text of a file\n"


@pytest.mark.parametrize("content", [b"", b"  \n"])
def test_an_empty_pipe_adds_nothing(holdfast: Holdfast, content: bytes) -> None:
    assert holdfast.process("run", "Hello", env=ECHO, input=content).out == "You said: Hello\n"


def test_a_pipe_is_not_read_with_no_stdin(holdfast: Holdfast) -> None:
    ran = holdfast.process("run", "Hello", "--no-stdin", env=ECHO, input=b"the text of a file")

    assert ran.out == "You said: Hello\n"


def test_a_silent_pipe_blocks_nothing_and_that_is_reported(tmp_path: Path) -> None:
    write_config(tmp_path / "home", alone="echo")
    command = [sys.executable, "-m", "holdfast", "--home", str(tmp_path / "home"), "run", "Hello"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.wait(50) == 0
        assert process.stdout is not None and process.stderr is not None
        assert process.stdout.read() == "You said: Hello\n"
        assert "Use --stdin to wait" in process.stderr.read()


def test_a_stopped_process_that_holds_the_session_is_named_while_the_turn_waits(
    holdfast: Holdfast, home: Path, scripted: Callable[..., str]
) -> None:
    with Terminal(home, model=scripted({"say": "Half of it", "hang": True})) as first:
        first.ready().say("Begin")
        first.see("Half of it")
        session_id = newest(holdfast)["id"]
        first.signal(signal.SIGSTOP)
        with Process(*holdfast.command("run", "--session", session_id, "And?"), stdin=subprocess.DEVNULL) as second:
            held = f"session {session_id} is held by process {first.pid}, which is stopped"
            assert second.wait_for_output(held, "stderr")
            assert f"kill -9 {first.pid}" in second.stderr
            first.signal(signal.SIGCONT)
            second.signal(signal.SIGTERM)
            assert second.wait() == 130
        first.kill()


@pytest.mark.parametrize(("typed", "removed"), [("yes please", True), ("n not now", False)])
def test_on_a_terminal_the_user_is_asked(tmp_path: Path, typed: str, *, removed: bool) -> None:
    write_config(tmp_path / "home", alone="asks")
    (tmp_path / "gone").mkdir()
    with Terminal(tmp_path / "home", "run", "Remove it", model=MODEL.format(tmp_path), cwd=tmp_path) as terminal:
        terminal.see("Allow this?")
        assert "rm -rf gone" in terminal.text
        terminal.press(f"{typed}\r")
        terminal.see("Asked.")
        status = terminal.wait()

    assert status == 0
    assert (tmp_path / "gone").exists() is not removed


def test_a_call_without_an_approver_is_reported_and_is_not_a_success(tmp_path: Path) -> None:
    home = tmp_path / "home"
    write_config(home, alone="asks")

    ran = run(home, "Remove it")

    assert (ran.returncode, ran.stdout) == (1, "Asked.\n")
    assert "terminal" in ran.stderr and "approval timed out" in ran.stderr


def test_a_call_without_an_approver_is_an_error_in_the_document(tmp_path: Path) -> None:
    home = tmp_path / "home"
    write_config(home, alone="asks")

    ran = run(home, "Remove it", "--json")

    assert ran.returncode == 1
    assert json.loads(ran.stdout)["error"]["code"] == "denied"
