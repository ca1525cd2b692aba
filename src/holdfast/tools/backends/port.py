"""The port that every terminal backend implements. `tests/contract/test_terminal_backend.py` has a test for each sentence."""

import asyncio
from asyncio.subprocess import PIPE
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import msgspec

from holdfast.model.errors import Unavailable
from holdfast.model.tool import ToolContext
from holdfast.processes.process_dir import LaunchPlan
from holdfast.tasks import run_to_completion

RUN_SECONDS = 60.0
"""The time limit of one file operation."""


class Completed(msgspec.Struct, frozen=True):
    code: int
    output: bytes
    errors: str


class CommandPlace(msgspec.Struct, frozen=True):
    """Where and how a command runs."""

    workdir: Path
    """Its directory in the backend."""
    launch: LaunchPlan
    """How its first program is started on this machine."""


class TerminalBackend(Protocol):
    name: str
    is_direct: bool
    """Whether the file tools may open its files directly. If not, they run programs in the backend."""
    shares_files: bool
    """Whether a path names the same file as on this machine."""

    async def prepare(self, context: ToolContext) -> None:
        """Make the backend ready for commands of the session. Raises Unavailable, with the reason, if that fails."""

    def workdir(self, context: ToolContext) -> Path:
        """The working directory of the session in the backend."""

    def prefix(self, context: ToolContext, workdir: Path, *, background: bool) -> tuple[str, ...]:
        """The program and arguments that run `SHELL -c COMMAND` in a directory. Empty if the shell runs as it is.

        Signals to that program reach the command, and its end by SIGKILL ends the command.
        """

    async def run(self, context: ToolContext, words: Sequence[str], data: bytes = b"") -> Completed:
        """Run a program with this input in the backend, and return its output. Raises Unavailable if it cannot be run."""


async def run_program(words: Sequence[str], data: bytes = b"", seconds: float = RUN_SECONDS) -> Completed:
    """Run a program on this machine, and return its output. It has ended when this returns or raises."""
    started: list[asyncio.subprocess.Process] = []

    async def spawn() -> None:
        started.append(
            await asyncio.create_subprocess_exec(*words, stdin=PIPE, stdout=PIPE, stderr=PIPE, start_new_session=True)
        )

    try:
        await run_to_completion(spawn())
        async with asyncio.timeout(seconds):
            output, errors = await started[0].communicate(data)
    except TimeoutError as e:
        raise Unavailable(f"{words[0]} did not end within {seconds:.0f} s") from e
    except OSError as e:
        raise Unavailable(f"{words[0]} cannot be run: {e.strerror}") from e
    finally:
        for process in started:
            if process.returncode is None:
                process.kill()
                await process.wait()
    code = started[0].returncode
    assert code is not None, "it has ended"
    return Completed(code, output, errors.decode("utf-8", "replace").strip())
