"""The outside of a program that is started to be killed: it is heard, told, signalled, and never left behind."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

LIMIT_SECONDS = 120.0
"""How long any single thing may take before it counts as hung."""
LONGEST_LINE = 1 << 22
Line = Mapping[str, Any]


class Failed(Exception):
    """A program ended otherwise than it should have."""


class Child:
    def __init__(self, name: str, process: asyncio.subprocess.Process) -> None:
        self._name = name
        self._process = process
        self.lines: list[Line] = []
        """All that it said so far."""
        self._heard = 0
        self._bell = asyncio.Event()
        self._complaints = b""
        self._ears = [asyncio.create_task(self._listen()), asyncio.create_task(self._mind_complaints())]

    async def _listen(self) -> None:
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            if line.endswith(b"\n"):  # the last one may be cut off by a kill
                self.lines.append(json.loads(line))
                self._bell.set()
        self._bell.set()

    async def _mind_complaints(self) -> None:
        assert self._process.stderr is not None
        self._complaints = await self._process.stderr.read()

    @property
    def pid(self) -> int:
        return self._process.pid

    def tell(self, order: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(order.encode() + b"\n")

    def signal(self, number: signal.Signals) -> None:
        if self._process.returncode is None:
            with suppress(ProcessLookupError):  # it has ended, and we are about to hear of it
                os.kill(self._process.pid, number)

    async def hear(self, what: str) -> Line:
        """The next line that says this. Raises Failed if the program ends without saying it."""
        async with asyncio.timeout(LIMIT_SECONDS):
            while True:
                while self._heard < len(self.lines):
                    self._heard += 1
                    if what in self.lines[self._heard - 1]:
                        return self.lines[self._heard - 1]
                if self._ears[0].done():
                    raise Failed(f"{self._name} ended without a word of {what!r}: {await self._last_words()}")
                self._bell.clear()
                await self._bell.wait()

    async def until(self, true: Callable[[Sequence[Line]], bool]) -> None:
        """Wait until what it said makes this true, or it has ended."""
        async with asyncio.timeout(LIMIT_SECONDS):
            while not true(self.lines) and not self._ears[0].done():
                self._bell.clear()
                await self._bell.wait()

    async def kill(self) -> bool:
        """As an OOM killer does it; False if it had ended before. Raises Failed if that was a bad end."""
        self.signal(signal.SIGKILL)
        if await self.end() == -signal.SIGKILL:
            return True
        await self.end_well()
        return False

    async def end(self) -> int:
        """Its exit status, once all it said has been heard; what a signal ended has that with a minus."""
        async with asyncio.timeout(LIMIT_SECONDS):
            code = await self._process.wait()
            await asyncio.wait(self._ears)
            return code

    async def end_well(self) -> None:
        """Wait for its end. Raises Failed if that is not as it should be."""
        if code := await self.end():
            raise Failed(f"{self._name} ended with {code}: {await self._last_words()}")

    async def _last_words(self) -> str:
        await self.end()
        return (self._complaints.decode("utf-8", "replace").strip().splitlines() or ["nothing"])[-1]


@asynccontextmanager
async def started(program: str, given: Mapping[str, Any], before: Sequence[str] = ()) -> AsyncIterator[Child]:
    """A program of this package in a process of its own. `before` is what starts it."""
    # -P: what lies in the folder that we were called from is none of our modules.
    line = [*before, sys.executable, "-P", "-m", f"holdfast.torture.{program}"]
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*line, stdin=pipe, stdout=pipe, stderr=pipe, limit=LONGEST_LINE)
    child = Child(program, process)
    child.tell(json.dumps(given))
    try:
        yield child
    finally:
        child.signal(signal.SIGKILL)
        await child.end()
