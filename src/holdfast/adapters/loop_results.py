"""Passes results of other threads to event loops, with one wake-up of the loop for all results of one commit.

`asyncio.wrap_future` wakes the loop for each result. With 64 sessions, that took a third of the time of a commit.
"""

import asyncio
from collections import deque
from concurrent.futures import Future
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary


class LoopResults:
    """The results that one event loop waits for."""

    def __init__(self) -> None:
        self._ready: deque[tuple[asyncio.Future[Any], Future[Any]]] = deque()
        self._is_woken = False

    def add(self, waiting: "asyncio.Future[Any]", future: "Future[Any]") -> None:
        """From any thread, when the future is done. A loop that has been closed waits for nothing."""
        self._ready.append((waiting, future))
        loop = waiting.get_loop()
        if not self._is_woken and not loop.is_closed():
            self._is_woken = True
            loop.call_soon_threadsafe(self._deliver)

    def _deliver(self) -> None:
        self._is_woken = False  # first, so that whatever is added from now on wakes the loop again
        while self._ready:
            waiting, future = self._ready.popleft()
            if waiting.done():  # its caller was cancelled
                continue
            if (error := future.exception()) is not None:
                waiting.set_exception(error)
            else:
                waiting.set_result(future.result())


_results: "WeakKeyDictionary[asyncio.AbstractEventLoop, LoopResults]" = WeakKeyDictionary()


def result_on_loop(future: "Future[Any]") -> "asyncio.Future[Any]":
    """A future of the running event loop for a future of another thread. Cancelling it does not cancel the other one."""
    loop = asyncio.get_running_loop()
    results = _results.get(loop)
    if results is None:
        results = _results.setdefault(loop, LoopResults())
    waiting: asyncio.Future[Any] = loop.create_future()
    future.add_done_callback(partial(results.add, waiting))
    return waiting
