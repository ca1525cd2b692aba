"""The port that every terminal backend implements. `tests/tools/backends/test_contract.py` has a test for each sentence."""

import asyncio
import contextlib
import signal
from asyncio.subprocess import PIPE
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

import msgspec

from holdfast.model.errors import Unavailable
from holdfast.model.tool import ToolContext
from holdfast.processes.process_dir import LaunchPlan
from holdfast.tasks import run_all
from holdfast.tools.subprocesses import CHUNK_BYTES, open_pipe, signal_group, start

RUN_SECONDS = 60.0
"""The time limit of one file operation."""
MAX_OUTPUT_BYTES = 64 * 1024 * 1024
"""More than a file tool reads at once. A command can replace programs of its container by ones that never stop writing."""


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


async def run_program(
    words: Sequence[str],
    data: bytes = b"",
    seconds: float = RUN_SECONDS,
    *,
    environment: Mapping[str, str],
    workdir: Path | None = None,
) -> Completed:
    """Run a program on this machine, and return its output. Its process group has ended when this returns or raises.

    The environment must not contain secrets: a file tool can show it, as /proc/self/environ.
    """
    # Not the pipes of asyncio: with them, waiting for the program also waits for every holder of its output.
    async with open_pipe() as (output, output_reader), open_pipe() as (errors, error_reader):
        try:
            with output, errors:
                process = await start(
                    words, workdir=workdir, output=output, errors=errors, environment=environment, stdin=PIPE
                )
        except OSError as e:
            raise Unavailable(f"{words[0]} cannot be run: {e.strerror}") from e
        try:
            async with asyncio.timeout(seconds):
                texts = await run_all(_feed(process, data), _read(output_reader), _read(error_reader))
                await process.wait()
        except TimeoutError as e:
            raise Unavailable(f"{words[0]} did not end within {seconds:.0f} s") from e
        finally:
            if process.returncode is None:
                await _kill(process)
    code = process.returncode
    assert code is not None, "it has ended"
    return Completed(code, texts[1], texts[2].decode("utf-8", "replace").strip())


async def _kill(process: asyncio.subprocess.Process) -> None:
    signal_group(process.pid, signal.SIGKILL)
    await process.wait()


async def _feed(process: asyncio.subprocess.Process, data: bytes) -> bytes:
    assert process.stdin is not None
    # A program may end without reading its input. A write to a closed pipe raises RuntimeError in uvloop.
    if not process.stdin.is_closing():
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            process.stdin.write(data)
            await process.stdin.drain()
    process.stdin.close()
    return b""


async def _read(stream: asyncio.StreamReader) -> bytes:
    output = bytearray()
    while chunk := await stream.read(CHUNK_BYTES):
        output += chunk
        if len(output) > MAX_OUTPUT_BYTES:
            raise Unavailable(f"the program wrote more than {MAX_OUTPUT_BYTES // 1024**2} MiB")
    return bytes(output)
