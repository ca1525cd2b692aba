"""Progress bars and the spinner: one line on a terminal while work is running, cleared at the end.

Not `rich.live`: it hides the cursor, which then stays hidden if the process is killed.
"""

import asyncio
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import TextIO

from holdfast.cli import render
from holdfast.model.sanitize import one_line
from holdfast.model.times import Clock
from holdfast.tasks import Tasks

WIDTH = 24
DELAY_SECONDS = 0.5
"""How long work takes before `show_progress` shows a bar."""
DRAW_SECONDS = 0.2
FRAMES = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
FRAME_SECONDS = 0.1


def _replace_line(stream: TextIO, text: str) -> None:
    """Write over the current line. A text that is too wide is cut, because a wrapped line could not be replaced."""
    import shutil  # it loads the compression libraries

    stream.write(f"\r\x1b[2K{render.truncate(text, max(shutil.get_terminal_size().columns - 1, 1))}")
    stream.flush()


def _format_bar(label: str, share: float) -> str:
    return f"{label} {'█' * int(share * WIDTH):░<{WIDTH}} {share:4.0%}"


@contextmanager
def show_progress(label: str) -> Iterator[Callable[[int, int], None]]:
    """Show a progress bar on standard error, if that is a terminal and the work takes a while."""
    with show_stages() as update:
        yield lambda done, total: update(label, done, total)


@contextmanager
def show_stages() -> Iterator[Callable[[str, int, int], None]]:
    """Like `show_progress`, for work that names its own stages."""
    stream, since, shown = sys.stderr, time.monotonic(), ""
    is_terminal = stream.isatty()

    def update(label: str, done: int, total: int) -> None:
        nonlocal shown
        line = _format_bar(label, min(done / total, 1) if total else 1)
        if is_terminal and line != shown and time.monotonic() - since >= DELAY_SECONDS:
            shown = line
            _replace_line(stream, line)

    try:
        yield update
    finally:
        if shown:
            _replace_line(stream, "")


class ProgressBar:
    """A bar with counts, rate and remaining time, redrawn a few times a second on a terminal. Clears its line at the end."""

    def __init__(self, label: str, clock: Clock, stream: TextIO | None = None) -> None:
        self._label = label
        self._clock = clock
        self._stream = stream or sys.stderr
        self._since = clock.monotonic()
        self._state = (0, 0, 0, 0)
        self._tasks = Tasks()

    def update(self, done: int, failed: int, total: int, before: int) -> None:
        """Set the state. `before` of the `done` items were finished before this run; the rate ignores them."""
        if done == before:
            self._since = self._clock.monotonic()
        self._state = done, failed, total, before

    async def __aenter__(self) -> "ProgressBar":
        if self._stream.isatty():
            self._tasks.start(self._draw(), name="progress bar")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._tasks:
            await self._tasks.close()
            _replace_line(self._stream, "")

    async def _draw(self) -> None:
        while True:
            seconds = self._clock.monotonic() - self._since
            _replace_line(self._stream, format_line(self._label, *self._state, seconds))
            await asyncio.sleep(DRAW_SECONDS)


def format_line(label: str, done: int, failed: int, total: int, before: int, seconds: float) -> str:
    """The text of the bar. Pure. Rate and remaining time are those of this run."""
    share = done / total if total else 0.0
    text = f"{_format_bar(label, share)}  {done:,}/{total:,}"
    if failed:
        text += f"  {failed:,} failed"
    if done > before and seconds > 0:
        rate = (done - before) / seconds
        text += f"  {format_rate(rate)}  {format_duration((total - done) / rate)} left"
    return text


def format_rate(rate: float) -> str:
    """The rate per second, or per minute if it is slow."""
    if rate >= 10:
        return f"{rate:,.0f}/s"
    return f"{rate:.1f}/s" if rate >= 1 else f"{rate * 60:.1f}/min"


def format_duration(seconds: float) -> str:
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02} min"


class Spinner:
    """An animated label on a terminal; nothing on other streams. Stopping it clears its line."""

    def __init__(self, label: str, stream: TextIO | None = None) -> None:
        self._label = label
        self._stream = stream or sys.stderr
        self._tasks = Tasks()
        self._is_shown = False

    async def __aenter__(self) -> "Spinner":
        if self._stream.isatty():
            self._is_shown = True
            self._tasks.start(self._animate(), name="spinner")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        await self._tasks.close()

    async def _animate(self) -> None:
        frame = 0
        while True:
            _replace_line(self._stream, f"{FRAMES[frame % len(FRAMES)]} {self._label}")
            frame += 1
            await asyncio.sleep(FRAME_SECONDS)

    def note(self, text: str) -> None:
        """Print a line above the spinner."""
        clear = "\r\x1b[2K" if self._is_shown else ""
        print(f"{clear}{one_line(text)}", file=self._stream, flush=True)

    def stop(self) -> None:
        if self._is_shown:
            self._is_shown = False
            self._tasks.cancel()
            _replace_line(self._stream, "")
