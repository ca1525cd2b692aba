"""A sign that something is going on, on a terminal, until there is something better to show."""

import asyncio
import sys
from types import TracebackType
from typing import TextIO

FRAMES = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
FRAME_SECONDS = 0.1


class Spinner:
    """Turns while it is open, unless its stream is not a terminal. Stopping it clears its line."""

    def __init__(self, what: str, stream: TextIO | None = None) -> None:
        self._what = what
        self._stream = stream or sys.stderr
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> "Spinner":
        if self._stream.isatty():
            self._task = asyncio.create_task(self._turn(), name="spinner")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    async def _turn(self) -> None:
        shown = 0
        while True:
            self._stream.write(f"\r{FRAMES[shown % len(FRAMES)]} {self._what}")
            self._stream.flush()
            shown += 1
            await asyncio.sleep(FRAME_SECONDS)

    def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            self._task = None
            self._stream.write("\r\x1b[2K")
            self._stream.flush()
