"""Polls the store once a second for changes, on behalf of all open pages; pauses while no page is open."""

import asyncio
from collections.abc import AsyncGenerator

from holdfast.store.database import Database
from holdfast.store.repos import log
from holdfast.supervisor import BackgroundTask, Completed, ignore_cycle, until_set

SECONDS = 1.0


class ChangePoller:
    def __init__(self, database: Database, seconds: float = SECONDS) -> None:
        self._database = database
        self._seconds = seconds
        self._watchers = 0
        self._wanted = asyncio.Event()
        self._changed = asyncio.Condition()
        self.position = 0

    def as_task(self) -> BackgroundTask:
        return BackgroundTask(self.work, self._seconds)

    async def work(self, completed: Completed = ignore_cycle) -> None:
        """Poll while a page is open, until cancelled. Errors escape."""
        while True:
            await until_set(self._wanted, completed)
            newest = await self._database.read(log.get_last_position)
            if newest != self.position:
                async with self._changed:
                    self.position = newest
                    self._changed.notify_all()
            completed()
            await asyncio.sleep(self._seconds)

    async def watch(self) -> AsyncGenerator[int, None]:
        """Yield the newest position of the store now and whenever it changes."""
        self._watchers += 1
        self._wanted.set()
        seen = -1
        try:
            while True:
                async with self._changed:
                    while self.position == seen:
                        await self._changed.wait()
                    seen = self.position
                yield seen
        finally:
            self._watchers -= 1
            if not self._watchers:
                self._wanted.clear()
