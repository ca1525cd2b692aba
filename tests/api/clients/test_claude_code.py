"""Claude Code, unmodified, with the server as its base URL. `tests/api/anthropic/test_claude_code.py` replays its requests."""

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.api.clients.conftest import LIMIT, ROOT, plain_environment
from tests.api.clients.conversation import listed
from tests.api.clients.line_program import ProgramFailed
from tests.api.clients.talk import PRINT_WEATHER, Talk
from tests.api.serving import KEY, Server

pytestmark = [pytest.mark.soak, pytest.mark.clients, pytest.mark.timeout(600)]
PROGRAM = ROOT / ".venv" / "soak-clients" / "node_modules" / ".bin" / "claude"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with Server(tmp_path / "home", alone="tools") as running:
        yield running


class ClaudeCode:
    """The command with its own home and working folder. It repeats failed requests by itself."""

    errors = (ProgramFailed,)
    tool_call = f'use tool Bash {{"command": "{PRINT_WEATHER}"}}'

    def __init__(self, server: Server, folder: Path) -> None:
        self._server = server
        self._begun = False
        self._home, self._work = folder / "claude", folder / "work"
        for made in (self._home, self._work):
            made.mkdir()

    def say(self, words: str) -> str:
        """Send the next message of the conversation."""
        begun, self._begun = self._begun, True
        return str(self.run(*(["--continue"] if begun else []), words)["result"])

    def run(self, *args: str) -> dict[str, Any]:
        """Run the command; return its report."""
        assert PROGRAM.is_file(), "the client is not installed: make .venv/ready-soak-clients"
        environment = plain_environment(
            HOME=str(self._home),
            ANTHROPIC_BASE_URL=self._server.url,
            ANTHROPIC_API_KEY=KEY,
            CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC="1",
            IS_SANDBOX="1",
        )
        options = ["--output-format", "json", "--dangerously-skip-permissions"]
        done = subprocess.run(
            [str(PROGRAM), "-p", *options, *args],
            check=False,
            cwd=self._work,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=LIMIT,
        )
        if done.returncode:
            raise ProgramFailed(done.stdout + done.stderr)
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    def close(self) -> None:
        """Each message has ended its process."""


@pytest.fixture
def claude(server: Server, tmp_path: Path) -> ClaudeCode:
    return ClaudeCode(server, tmp_path)


def test_claude_code_continues_its_session_over_restarts(claude: ClaudeCode, server: Server) -> None:
    first = claude.run("words 0")
    for n in range(1, 9):
        going_on = ["--continue"] if n % 2 else ["--resume", first["session_id"]]
        assert claude.run(*going_on, f"words {n}")["result"] == f"You said: words {n}"
        if n % 3 == 0:
            server.kill()
            server.restart()
    ran = claude.run("--continue", 'use tool Bash {"command": "echo marker-$((40 + 2))"}')

    assert ran["result"].startswith("done: Bash: marker-42")
    [session] = [one for one in listed(server) if one["side_of"] is None]
    assert (session["channel"], session["parent_id"]) == (f"key:{first['session_id']}", None)
    assert session["turn_count"] == 11, "ten messages, and the result of a tool"


def test_ten_turns_with_two_crashes_are_one_session(upstream: Server, record: Path, tmp_path: Path) -> None:
    record.touch()
    conversation = Talk(upstream, record, ClaudeCode(upstream, tmp_path))
    conversation.take(10)
    conversation.check()


def test_a_subagent_has_a_session_of_its_own(claude: ClaudeCode, server: Server) -> None:
    task = {"description": "look", "prompt": "hello", "subagent_type": "general-purpose", "run_in_background": False}
    first = claude.run(f"use tool Agent {json.dumps(task)}")
    claude.run("--continue", "and then?")

    names = sorted(str(one["channel"]) for one in listed(server) if one["side_of"] is None)
    assert names[0] == f"key:{first['session_id']}"
    assert len(names) == 2 and re.fullmatch(rf"key:{first['session_id']}/\w+", names[1])


def test_the_example_runs_as_written(server: Server, tmp_path: Path) -> None:
    page = (ROOT / "docs" / "api.md").read_text("utf-8").partition("### Claude Code\n")[2]
    [script, *_] = re.findall(r"```sh\n(.*?)```", page, flags=re.DOTALL)
    (tmp_path / ".holdfast").mkdir()
    (tmp_path / ".holdfast" / "api-key").write_text(KEY)
    environment = plain_environment(HOME=str(tmp_path), PATH=f"{PROGRAM.parent}:/usr/bin:/bin")
    done = subprocess.run(
        ["bash", "-ec", script.replace(":8420", f":{server.port}")],
        check=False,
        cwd=tmp_path,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=LIMIT,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.endswith("You said: And then?\n")
    [session] = [one for one in listed(server) if one["side_of"] is None]
    assert session["turn_count"] == 2
