"""The Codex CLI, unmodified. It uses only the Responses API and names its session itself."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.api.clients.conftest import INSTALLED, LIMIT, NODE, plain_environment
from tests.api.clients.conversation import Conversation, listed
from tests.api.clients.line_program import ProgramFailed
from tests.api.clients.talk import PRINT_WEATHER, Talk
from tests.api.serving import KEY, Server

pytestmark = [pytest.mark.clients, pytest.mark.timeout(300)]
WINDOW = 30_000
"""Its own instructions and tools take more than half of it."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server(tmp_path_factory.mktemp("codex") / "home", alone="tools", context_window=WINDOW) as running:
        yield running


class Codex:
    """The command with its own home and working folder."""

    def __init__(self, server: Server, folder: Path) -> None:
        self._home, self._work = folder / "codex", folder / "work"
        for made in (self._home, self._work):
            made.mkdir()
        lines = [
            'model = "holdfast"',
            'model_provider = "holdfast"',
            'web_search = "disabled"',
            "[model_providers.holdfast]",
            'name = "Holdfast"',
            f'base_url = "{server.url}/v1"',
            'env_key = "HOLDFAST_API_KEY"',
            'wire_api = "responses"',
            "",
        ]
        (self._home / "config.toml").write_text("\n".join(lines))
        self.thread = ""

    def say(self, text: str) -> list[dict[str, Any]]:
        """Run the command in the same session as before; return its report."""
        options = ["--skip-git-repo-check", "--json", "--dangerously-bypass-approvals-and-sandbox"]
        going_on = ["resume", self.thread] if self.thread else []
        script = INSTALLED / "node_modules" / "@openai" / "codex" / "bin" / "codex.js"
        assert script.is_file(), "the clients are not installed: make .venv/ready-clients"
        environment = plain_environment(CODEX_HOME=str(self._home), HOLDFAST_API_KEY=KEY)
        done = subprocess.run(
            [str(NODE), str(script), "exec", *options, *going_on, text],
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
        events = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
        self.thread = next(event["thread_id"] for event in events if event["type"] == "thread.started")
        return events


@pytest.fixture
def codex(server: Server, tmp_path: Path) -> Codex:
    return Codex(server, tmp_path)


def reply(events: list[dict[str, Any]]) -> str:
    items = [event["item"] for event in events if event["type"] == "item.completed"]
    return "\n".join(item["text"] for item in items if item["type"] == "agent_message")


def test_codex_runs_its_own_commands_and_continues_its_session(codex: Codex, server: Server) -> None:
    before = {session["id"] for session in listed(server)}
    first = codex.say('use tool exec_command {"cmd": "echo marker-$((40 + 2))"}')
    second = codex.say("and then?")

    ran = [event["item"] for event in first if event.get("item", {}).get("type") == "command_execution"]
    assert "marker-42" in ran[-1]["aggregated_output"]
    assert reply(first).startswith("done: exec_command:")
    assert reply(second) == "You said: and then?"
    assert len([session for session in listed(server) if session["id"] not in before]) == 1


class CodexProgram:
    """The command as a client of a `Talk`. It repeats failed requests by itself."""

    errors = (ProgramFailed,)
    tool_call = f'use tool exec_command {{"cmd": "{PRINT_WEATHER}"}}'

    def __init__(self, server: Server, folder: Path) -> None:
        self._codex = Codex(server, folder)

    def say(self, words: str) -> str:
        return reply(self._codex.say(words))

    def close(self) -> None:
        """Each message has ended its process."""


@pytest.mark.soak
def test_ten_turns_with_two_crashes_are_one_session(upstream: Server, record: Path, tmp_path: Path) -> None:
    record.touch()
    conversation = Talk(upstream, record, CodexProgram(upstream, tmp_path))
    conversation.take(10)
    conversation.check()


@pytest.mark.soak
def test_codex_continues_its_session_through_compactions(codex: Codex, server: Server) -> None:
    conversation = Conversation("words " * 700)
    known = {session["id"] for session in listed(server)}

    conversation.check(server, [reply(codex.say(line)) for line in conversation.all], known)
