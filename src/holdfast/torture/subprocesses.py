"""Controls a program that a trial starts and kills: reads its output, sends commands and signals, and always ends it."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from types import ModuleType
from typing import Any

from holdfast.tasks import Tasks

LIMIT_SECONDS = 120.0
"""How long one step may take before the trial fails."""
MAX_LINE = 1 << 22
Line = Mapping[str, Any]


class ProgramFailed(Exception):
    """A program did not end as it should have."""


class ChildProcess:
    def __init__(self, name: str, process: asyncio.subprocess.Process) -> None:
        self._name = name
        self._process = process
        self.lines: list[Line] = []
        """Every complete line that it has emitted so far."""
        self.stderr = ""
        """Its error output; complete once it has ended."""
        self._read = 0
        self._changed = asyncio.Event()
        self._tasks = Tasks(on_failure=None)
        self._readers = [self._tasks.start(self._read_lines()), self._tasks.start(self._read_errors())]

    async def _read_lines(self) -> None:
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            if line.endswith(b"\n"):  # a kill may cut the last one off
                self.lines.append(json.loads(line))
                self._changed.set()
        self._changed.set()

    async def _read_errors(self) -> None:
        assert self._process.stderr is not None
        self.stderr = (await self._process.stderr.read()).decode("utf-8", "replace")

    @property
    def pid(self) -> int:
        return self._process.pid

    def send(self, command: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(command.encode() + b"\n")

    def signal(self, number: signal.Signals) -> None:
        if self._process.returncode is None:
            with suppress(ProcessLookupError):  # it has ended, and asyncio does not know yet
                os.kill(self._process.pid, number)

    async def next_line(self, key: str) -> Line:
        """Wait for the next line with this key. Raises ProgramFailed if the program ends without one."""
        async with asyncio.timeout(LIMIT_SECONDS):
            while True:
                while self._read < len(self.lines):
                    self._read += 1
                    if key in self.lines[self._read - 1]:
                        return self.lines[self._read - 1]
                if self._readers[0].done():
                    raise ProgramFailed(f"{self._name} ended and never emitted {key!r}: {await self._last_error()}")
                self._changed.clear()
                await self._changed.wait()

    async def wait_until(self, condition: Callable[[Sequence[Line]], bool]) -> None:
        """Wait until its lines fulfil the condition, or it has ended."""
        async with asyncio.timeout(LIMIT_SECONDS):
            while not condition(self.lines) and not self._readers[0].done():
                self._changed.clear()
                await self._changed.wait()

    async def kill(self) -> bool:
        """Kill it with SIGKILL. Return False if it had already ended; raise ProgramFailed if it had failed."""
        self.signal(signal.SIGKILL)
        if await self.wait() == -signal.SIGKILL:
            return True
        await self.wait_for_success()
        return False

    async def wait(self) -> int:
        """Wait for its end and for all its output. Return the exit status, or minus the number of the signal."""
        async with asyncio.timeout(LIMIT_SECONDS):
            code = await self._process.wait()
            await asyncio.wait(self._readers)
            return code

    async def wait_for_success(self) -> None:
        """Wait for its end. Raises ProgramFailed if the exit status is not 0."""
        if code := await self.wait():
            raise ProgramFailed(f"{self._name} exited with status {code}: {await self._last_error()}")

    async def _last_error(self) -> str:
        await self.wait()
        return (self.stderr.strip().splitlines() or ["no error output"])[-1]


@asynccontextmanager
async def start_program(
    program: ModuleType, parameters: Mapping[str, Any], prefix: Sequence[str] = ()
) -> AsyncIterator[ChildProcess]:
    """Run a module as a process until the block ends. `prefix` is a command that starts it."""
    # -P: modules in the current directory must not shadow ours.
    command = [*prefix, sys.executable, "-P", "-m", program.__name__]
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe, stderr=pipe, limit=MAX_LINE)
    child = ChildProcess(program.__name__.rpartition(".")[2], process)
    child.send(json.dumps(parameters))
    try:
        yield child
    finally:
        child.signal(signal.SIGKILL)
        await child.wait()
