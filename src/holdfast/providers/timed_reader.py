"""Reads the body of a response with a time limit for each read, and one timer for all of them."""

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import aiohttp


class TimedReader:
    """Close it at the end. After a timeout the response cannot be read any more.

    The limit is later for each chunk, so the timer is not moved: when it fires too early, it starts again.
    """

    def __init__(self, content: "aiohttp.StreamReader") -> None:
        self._content = content
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._fires_at = 0.0
        self._limit: float | None = None
        """The time limit of the current read; None between reads."""

    async def read(self, limit: float) -> bytes:
        """All bytes that have arrived, at least one; none at the end. Raises TimeoutError at this time of the event loop."""
        self._limit = limit
        if self._timer is None or limit < self._fires_at:
            self._start(limit)
        try:
            return await self._content.readany()
        finally:
            self._limit = None

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _start(self, at: float) -> None:
        self.close()
        self._fires_at = at
        self._timer = self._loop.call_at(at, self._fire)

    def _fire(self) -> None:
        self._timer = None
        if self._limit is not None and self._loop.time() >= self._limit:
            self._content.set_exception(TimeoutError())
        elif self._limit is not None:
            self._start(self._limit)
