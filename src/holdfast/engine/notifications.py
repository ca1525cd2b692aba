"""Waits for notifications of the store, with a time limit."""

import asyncio
from types import TracebackType
from typing import Self

from holdfast.store.database import Database


class TopicListener:
    """Listens to a topic of the store while it is open. A notification between two waits is not missed.

    The first wait returns at once, because a notification may have been sent before this listener opened.
    """

    def __init__(self, database: Database, topic: str) -> None:
        self._database = database
        self._topic = topic
        self._notified = asyncio.Event()
        self._notified.set()

    def __enter__(self) -> Self:
        self._unsubscribe = self._database.subscribe(self._topic, self._notified.set)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._unsubscribe()

    async def wait(self, seconds: float | None) -> bool:
        """Wait for a notification, at most that long; whether there was one."""
        try:
            async with asyncio.timeout(None if seconds is None else max(seconds, 0.01)):
                await self._notified.wait()
        except TimeoutError:
            return False
        self._notified.clear()
        return True
