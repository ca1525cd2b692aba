"""Limits the bandwidth of one user with a token bucket."""

import asyncio
from collections.abc import Callable

BURST_SECONDS = 1.0


class RateLimit:
    """`kb_per_second` None means no limit."""

    def __init__(self, kb_per_second: int | None, monotonic: Callable[[], float]) -> None:
        self._rate = None if kb_per_second is None else kb_per_second * 1024
        self._monotonic = monotonic
        self._free_at = monotonic()

    def delay(self, size: int) -> float:
        """Count bytes; return the seconds to wait before the next."""
        if self._rate is None:
            return 0.0
        now = self._monotonic()
        self._free_at = max(self._free_at, now - BURST_SECONDS) + size / self._rate
        return max(0.0, self._free_at - now)

    async def consume(self, size: int) -> None:
        if (delay := self.delay(size)) > 0:
            await asyncio.sleep(delay)
