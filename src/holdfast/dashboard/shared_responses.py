"""Answers equal requests of many open pages with one response.

A change of the store makes all open pages request the same part at once. Each request gets a response that was begun
after it arrived, so none is older than the change; equal requests that wait get the same one.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable

from holdfast.model.times import Clock

SECONDS = 0.2
"""The least time between the beginnings of two equal responses. Too short to notice: a page reloads at most every 1.5 s."""
MAX_KEPT = 32
"""Kinds of requests whose latest response is kept; arbitrary. A response has up to 100 KB."""


class _Shared:
    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.began = 0
        """The number of the latest response, in the order of arrivals and beginnings; 0 if there is none."""
        self.began_at = float("-inf")
        self.body = b""


class SharedResponses:
    def __init__(self, clock: Clock, seconds: float = SECONDS) -> None:
        self._clock = clock
        self._seconds = seconds
        self._shared: OrderedDict[Hashable, _Shared] = OrderedDict()
        self._number = 0

    async def get(self, key: Hashable, make: Callable[[], Awaitable[bytes]]) -> bytes:
        """The body that `make` returns, or returned for an equal request after this one arrived. Errors of `make` escape."""
        arrived, shared = self._next_number(), self._find(key)
        async with shared.lock:
            if shared.began < arrived:
                await asyncio.sleep(max(0.0, shared.began_at + self._seconds - self._clock.monotonic()))
                began, shared.began_at = self._next_number(), self._clock.monotonic()
                shared.body, shared.began = await make(), began
            return shared.body

    def _find(self, key: Hashable) -> _Shared:
        shared = self._shared.setdefault(key, _Shared())
        self._shared.move_to_end(key)
        if len(self._shared) > MAX_KEPT:
            self._shared.popitem(last=False)
        return shared

    def _next_number(self) -> int:
        self._number += 1
        return self._number
