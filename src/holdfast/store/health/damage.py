"""Records that a store is damaged, until a check of the whole store finds no problem."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from holdfast.supervisor import BackgroundTask, Completed, Supervisor
from holdfast.tasks import stop

logger = logging.getLogger(__name__)
CHECK_SECONDS = 60.0
"""How often a store that was found damaged is checked again: a check reads all of it."""
CHECK_LIMIT = 4 * 3600.0
"""Limit of one check in seconds: enough for 140 GB at the 10 MB/s of a failing disk. The store is not ready meanwhile."""


class Damage:
    """The known damage of a store. `check` returns the present damage, or None."""

    def __init__(self, check: Callable[[], Awaitable[str | None]], supervisor: Supervisor) -> None:
        self._check = check
        self._supervisor = supervisor
        self._checker: asyncio.Task[None] | None = None
        self._closed = False
        self.found: str | None = None

    def note(self, what: str) -> None:
        """Record damage that a read or a write has found. Call it on the event loop."""
        if self.found is None:
            logger.error("the store is damaged: %s", what)
        self.found = what
        if self._checker is None and not self._closed:
            self._checker = self._supervisor.start(
                "store check", BackgroundTask(self._work, CHECK_SECONDS, CHECK_LIMIT)
            )

    async def close(self) -> None:
        """Stop checking."""
        self._closed = True
        if self._checker is not None:
            await stop(self._checker)

    async def _work(self, completed: Completed) -> None:
        """Check periodically whether the damage is gone, for example after a restore."""
        while True:
            if self.found is not None:
                self.found = await self._check()
                if self.found is None:
                    logger.warning("a check of the whole store found no damage; it is healthy again")
            completed()
            await asyncio.sleep(CHECK_SECONDS)
