"""Waiting for news of the store, but not for ever."""

import asyncio
from types import TracebackType
from typing import Self

from holdfast.engine.together import stop
from holdfast.store.database import Database


class Bell:
    """Rings when a topic may have news. What rings between two waits is not missed."""

    def __init__(self, database: Database, topic: str) -> None:
        self._database = database
        self._topic = topic
        self._rung = asyncio.Event()
        self._pull: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._pull = asyncio.create_task(self._listen(), name=f"bell {self._topic}")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._pull is not None, "it was entered"
        await stop(self._pull)

    async def _listen(self) -> None:
        async for _ in self._database.listen(self._topic):
            self._rung.set()

    def ring(self) -> None:
        self._rung.set()

    async def wait(self, seconds: float) -> bool:
        """Wait until it rings, or that long; whether it rang."""
        try:
            async with asyncio.timeout(max(seconds, 0.01)):
                await self._rung.wait()
        except TimeoutError:
            return False
        self._rung.clear()
        return True
