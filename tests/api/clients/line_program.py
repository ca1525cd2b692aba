"""A client in a process of its own: it reads a message per line, as JSON, and answers each with a line."""

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path

from tests.api.clients.conftest import LIMIT, plain_environment
from tests.api.clients.talk import TOOL_CALL


class ProgramFailed(Exception):
    """The client has reported an error."""


class LineProgram:
    errors = (ProgramFailed,)

    def __init__(
        self, command: Sequence[str | Path], *, tool_call: str = TOOL_CALL, folder: Path | None = None
    ) -> None:
        self.tool_call = tool_call
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=folder, env=plain_environment()
        )

    def say(self, words: str) -> str:
        assert self._process.stdin is not None and self._process.stdout is not None
        print(json.dumps(words), file=self._process.stdin, flush=True)
        reply = json.loads(self._process.stdout.readline())
        if "error" in reply:
            raise ProgramFailed(reply["error"])
        return str(reply["text"])

    def close(self) -> None:
        self._process.communicate(timeout=LIMIT)
