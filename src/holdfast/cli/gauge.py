"""How far long work has come, on one line of a terminal: a bar, how many, how fast, and how long it will take."""

import asyncio
import shutil
import sys
from types import TracebackType
from typing import TextIO

from holdfast.cli import render
from holdfast.model.times import Clock

WIDTH = 24
DRAW_SECONDS = 0.2


class Gauge:
    """Draws itself a few times a second while it is open, unless its stream is not a terminal. Clears its line at the end."""

    def __init__(self, what: str, clock: Clock, stream: TextIO | None = None) -> None:
        self._what = what
        self._clock = clock
        self._stream = stream or sys.stderr
        self._since = clock.monotonic()
        self._state = (0, 0, 0, 0)
        self._task: asyncio.Task[None] | None = None

    def update(self, done: int, failed: int, total: int, before: int) -> None:
        """`before` of them were done before this run: its rate does not count them, nor the time it took to find them."""
        if done == before:
            self._since = self._clock.monotonic()
        self._state = done, failed, total, before

    async def __aenter__(self) -> "Gauge":
        if self._stream.isatty():
            self._task = asyncio.create_task(self._draw(), name="gauge")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._task is not None:
            self._task.cancel()
            self._stream.write("\r\x1b[2K")
            self._stream.flush()

    async def _draw(self) -> None:
        while True:
            seconds = self._clock.monotonic() - self._since
            room = shutil.get_terminal_size().columns - 1  # a line that is broken could not be drawn over
            self._stream.write(f"\r\x1b[2K{render.cut(line(self._what, *self._state, seconds), room)}")
            self._stream.flush()
            await asyncio.sleep(DRAW_SECONDS)


def line(what: str, done: int, failed: int, total: int, before: int, seconds: float) -> str:
    """The line. Pure. Rate and time left are those of this run."""
    share = done / total if total else 0.0
    bar = "█" * int(share * WIDTH)
    said = f"{what} {bar:░<{WIDTH}} {share:4.0%}  {done:,}/{total:,}"
    if failed:
        said += f"  {failed:,} failed"
    if done > before and seconds > 0:
        rate = (done - before) / seconds
        said += f"  {per(rate)}  {lasting((total - done) / rate)} left"
    return said


def per(rate: float) -> str:
    """How many in a unit of time that makes sense of it."""
    if rate >= 10:
        return f"{rate:,.0f}/s"
    return f"{rate:.1f}/s" if rate >= 1 else f"{rate * 60:.1f}/min"


def lasting(seconds: float) -> str:
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02} min"
