"""The command llm, which runs once for each message and keeps its own history."""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.api.clients.conftest import LIMIT, plain_environment
from tests.api.clients.line_program import ProgramFailed
from tests.api.clients.talk import TOOL_CALL
from tests.api.serving import KEY

FUNCTIONS = 'def weather(place: str) -> str:\n    "Tells the weather."\n    return f"Rain in {place}."\n'


def configure_llm(folder: Path, url: str) -> Path:
    """Make the folder the home of the command."""
    lines = [
        "- model_id: holdfast",
        "  model_name: holdfast",
        f"  api_base: {url}/v1",
        "  api_key_name: holdfast",
        "  supports_tools: true",
        "",
    ]
    (folder / "extra-openai-models.yaml").write_text("\n".join(lines))
    (folder / "keys.json").write_text(json.dumps({"holdfast": KEY}))
    return folder


def llm(home: Path, *args: str, said: str = "") -> str:
    # No plugins but its own: others that happen to be installed are not the subject.
    environment = plain_environment(LLM_USER_PATH=str(home), LLM_LOAD_PLUGINS="")
    command = [sys.executable, "-m", "llm", *args]
    done = subprocess.run(
        command, input=said, check=False, capture_output=True, text=True, timeout=LIMIT, env=environment
    )
    if done.returncode:
        raise ProgramFailed(done.stderr)
    return done.stdout


class Llm:
    errors = (ProgramFailed,)
    tool_call = TOOL_CALL

    def __init__(self, url: str, form: str) -> None:
        self._folder = tempfile.TemporaryDirectory()
        self._home = configure_llm(Path(self._folder.name), url)
        self._options = [] if form == "stream" else ["--no-stream"]
        self._begun = False

    def say(self, words: str) -> str:
        options = ["-m", "holdfast", "--functions", FUNCTIONS, *self._options, *(["-c"] if self._begun else [])]
        reply = llm(self._home, *options, words)
        self._begun = True
        return reply

    def close(self) -> None:
        self._folder.cleanup()


def make(url: str, form: str) -> Llm:
    return Llm(url, form)
