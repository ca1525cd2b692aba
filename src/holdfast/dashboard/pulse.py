"""One look at the store a second, for all the pages that want to know whether something has changed; none while nobody wants to."""

import asyncio
import logging
from collections.abc import AsyncGenerator

from holdfast.model.errors import HoldfastError
from holdfast.store import board
from holdfast.store.database import Database

logger = logging.getLogger(__name__)
SECONDS = 1.0


class Pulse:
    def __init__(self, database: Database, seconds: float = SECONDS) -> None:
        self._database = database
        self._seconds = seconds
        self._watchers = 0
        self._wanted = asyncio.Event()
        self._changed = asyncio.Condition()
        self.position = 0

    async def work(self) -> None:
        """Look while somebody watches; until cancelled."""
        while True:
            await self._wanted.wait()
            try:
                newest = await self._database.read(board.newest)
            except HoldfastError as e:  # a store that is away is looked at again
                logger.warning("the pages wait for the store: %s", e)
                newest = self.position
            if newest != self.position:
                async with self._changed:
                    self.position = newest
                    self._changed.notify_all()
            await asyncio.sleep(self._seconds)

    async def watch(self) -> AsyncGenerator[int, None]:
        """The newest position of the store, at once and then whenever there is a newer one."""
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
