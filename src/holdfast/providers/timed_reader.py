"""Reads the bodies of streamed responses: a time limit for each read, and a limit for the reads of all streams together."""

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import aiohttp

READS_PER_SECOND = 5_000
"""Of all streams together. A read and the piece of text that it leads to cost about 50 µs."""
SHORTEST_PAUSE = 0.01
"""Shorter pauses are left out: so few streams cost little."""
LONGEST_PAUSE = 0.25
"""Seconds between two reads of a stream, however many there are."""


class ReadPace:
    """How often a stream is read: the more streams are open, the more words are read and shown together."""

    def __init__(self) -> None:
        self.streams = 0

    @property
    def pause(self) -> float:
        """Seconds from one read of a stream to the next."""
        pause = self.streams / READS_PER_SECOND
        return 0.0 if pause < SHORTEST_PAUSE else min(pause, LONGEST_PAUSE)


class TimedReader:
    """Close it at the end. After a timeout the response cannot be read any more.

    The limit is later for each chunk, so the timer is not moved: when it fires too early, it starts again.
    """

    def __init__(self, content: "aiohttp.StreamReader", pace: ReadPace) -> None:
        self._content = content
        self._pace = pace
        self._pace.streams += 1
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._fires_at = 0.0
        self._limit: float | None = None
        """The time limit of the current read; None between reads."""
        self._next_at = 0.0
        """When the stream may be read again."""
        self._pausing: asyncio.Future[None] | None = None
        content.on_eof(self._end_pause)

    async def read(self, limit: float) -> bytes:
        """All bytes that have arrived, at least one; none at the end. Raises TimeoutError at this time of the event loop.

        Waits for the pace of all streams first, unless the end of the response has arrived.
        """
        now = self._loop.time()
        if now < self._next_at and not self._content.is_eof():
            await self._pause(self._next_at)
            now = self._loop.time()
        self._limit = limit
        if self._timer is None or limit < self._fires_at:
            self._start(limit)
        try:
            chunk = await self._content.readany()
        finally:
            self._limit = None
        if pause := self._pace.pause:
            self._next_at = self._loop.time() + pause
        return chunk

    def close(self) -> None:
        self._pace.streams -= 1
        self._stop()

    async def _pause(self, until: float) -> None:
        self._pausing = self._loop.create_future()
        timer = self._loop.call_at(until, self._end_pause)
        try:
            await self._pausing
        finally:
            timer.cancel()
            self._pausing = None

    def _end_pause(self) -> None:
        if self._pausing is not None and not self._pausing.done():
            self._pausing.set_result(None)

    def _start(self, at: float) -> None:
        self._stop()
        self._fires_at = at
        self._timer = self._loop.call_at(at, self._fire)

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _fire(self) -> None:
        self._timer = None
        if self._limit is not None and self._loop.time() >= self._limit:
            self._content.set_exception(TimeoutError())
        elif self._limit is not None:
            self._start(self._limit)
