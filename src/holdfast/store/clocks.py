"""The clock that counts: this machine's, or that of a server which several machines share.

When something is due, idle or over is decided by the wall clock. Clocks of machines differ, by an hour if somebody was
careless; the store has one. So a worker counts from the store's time: its own, and by how much the store's is ahead. Who
may write, and who is dead, no wall clock decides anyway.
"""

import asyncio
import logging
from typing import cast

from holdfast.clock import SystemClock
from holdfast.model.errors import HoldfastError
from holdfast.model.times import SECOND, Clock
from holdfast.store.database import Database, Transaction
from holdfast.store.sqlite import SqliteDatabase

log = logging.getLogger(__name__)

LOOK_SECONDS = 30.0
"""How soon it is noticed that somebody has set a clock."""
WORTH_SAYING = 5 * SECOND


async def clock_of(database: Database) -> Clock:
    """This machine's, where only this machine can reach the store; else the store's."""
    if isinstance(database, SqliteDatabase):
        return SystemClock()
    clock = ServerClock(SystemClock(), database)
    await clock.look()
    return clock


class ServerClock:
    """Tells the store's time. `look` must be called first, and now and then."""

    def __init__(self, own: Clock, database: Database) -> None:
        self._own = own
        self._database = database
        self.ahead = 0
        """By how much the store's clock is ahead of this machine's, in microseconds."""

    def now(self) -> int:
        return self._own.now() + self.ahead

    def monotonic(self) -> float:
        return self._own.monotonic()

    async def look(self) -> None:
        """Compare the clocks. What may be due to the time that the answer took changes nothing."""
        before, began = self._own.now(), self._own.monotonic()
        theirs = await self._database.read(_now)
        took = int((self._own.monotonic() - began) * SECOND)
        ahead = theirs - (before + took // 2)
        if abs(ahead - self.ahead) <= took:
            return
        if abs(ahead - self.ahead) > WORTH_SAYING:
            off = "behind" if ahead > 0 else "ahead of"
            log.warning("this machine's clock is %.0f s %s the store's, which counts", abs(ahead) / SECOND, off)
        self.ahead = ahead

    async def work(self) -> None:
        """Look now and then, for ever: a store that is away is asked again."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            try:
                await self.look()
            except HoldfastError as e:
                log.info("the store's clock is looked at again later: %s", e)


def _now(tx: Transaction) -> int:
    row = tx.one("driver.clock")
    assert row is not None
    return cast("int", row[0])
