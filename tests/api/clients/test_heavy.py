"""Unmodified clients that are too large for the usual tests: litellm, instructor and opencode."""

import json
import subprocess
from contextlib import closing
from pathlib import Path

import pytest

from tests.api.clients.conftest import LIMIT, ROOT, plain_environment
from tests.api.clients.line_program import LineProgram, ProgramFailed
from tests.api.clients.talk import PRINT_WEATHER, TOOL_CALL, Talk
from tests.api.serving import KEY, Server

pytestmark = [pytest.mark.soak, pytest.mark.clients, pytest.mark.timeout(600)]
INSTALLED = ROOT / ".venv" / "soak-clients"
PROGRAM = Path(__file__).parent / "heavy" / "chat_program.py"


def chat_program(url: str, form: str) -> LineProgram:
    """litellm or instructor, in an environment of its own."""
    assert INSTALLED.is_dir(), "the clients are not installed: make .venv/ready-soak-clients"
    command = [INSTALLED / "python" / "bin" / "python", PROGRAM, form, url, KEY]
    return LineProgram(command, tool_call="" if form.startswith("instructor") else TOOL_CALL)


class OpenCode:
    """The command, which runs once for each message. It repeats failed requests by itself."""

    errors = (ProgramFailed,)
    tool_call = f'use tool bash {{"command": "{PRINT_WEATHER}", "description": "Prints."}}'

    def __init__(self, url: str, folder: Path) -> None:
        self._program = INSTALLED / "node_modules" / "opencode-linux-x64" / "bin" / "opencode"
        assert self._program.is_file(), "the clients are not installed: make .venv/ready-soak-clients"
        self._work, self._home = folder / "work", folder / "opencode"
        for made in (self._work, self._home):
            made.mkdir()
        provider = {
            "npm": "@ai-sdk/openai-compatible",
            "options": {"baseURL": f"{url}/v1", "apiKey": KEY},
            "models": {"holdfast": {"name": "holdfast"}},
        }
        model = "holdfast/holdfast"
        config = {"provider": {"holdfast": provider}, "model": model, "small_model": model, "share": "disabled"}
        (self._work / "opencode.json").write_text(json.dumps(config))
        self.session = ""

    def say(self, words: str) -> str:
        folders = {
            name: str(self._home / name) for name in ("HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME")
        }
        quiet = {"OPENCODE_DISABLE_AUTOUPDATE": "1", "OPENCODE_DISABLE_MODELS_FETCH": "1"}
        done = subprocess.run(
            [self._program, "run", "--format", "json", *(["--session", self.session] if self.session else [])],
            check=False,
            input=words,
            cwd=self._work,
            env=plain_environment(**folders, **quiet),
            capture_output=True,
            text=True,
            timeout=LIMIT * 2,
        )
        events = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
        if done.returncode or any(event["type"] == "error" for event in events):
            raise ProgramFailed(done.stdout + done.stderr)
        self.session = events[0]["sessionID"]
        return "".join(event["part"]["text"] for event in events if event["type"] == "text")

    def close(self) -> None:
        """Each message has ended its process."""


@pytest.mark.parametrize("form", ["litellm", "litellm stream", "instructor", "instructor stream"])
def test_ten_turns_with_two_crashes_are_one_session(upstream: Server, record: Path, form: str) -> None:
    record.touch()
    with closing(chat_program(upstream.url, form)) as program:
        conversation = Talk(upstream, record, program)
        conversation.take(10)
        conversation.check()


def test_ten_turns_of_opencode_with_two_crashes_are_one_session(upstream: Server, record: Path, tmp_path: Path) -> None:
    record.touch()
    with closing(OpenCode(upstream.url, tmp_path)) as program:
        conversation = Talk(upstream, record, program)
        conversation.take(10)
        conversation.check()


def test_opencode_runs_its_own_tools(upstream: Server, record: Path, tmp_path: Path) -> None:
    record.touch()
    with closing(OpenCode(upstream.url, tmp_path)) as program:
        program.say('use tool bash {"command": "echo made-$((40 + 2))", "description": "Prints."}')

    assert any("made-42" in str(one) for one in json.loads(record.read_text().splitlines()[-1])["messages"])
