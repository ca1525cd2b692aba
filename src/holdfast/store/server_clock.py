"""The clock of a store: that of this machine, or that of the database server that several machines share.

A wall clock decides when something is due, idle or over. The clocks of machines can differ by an hour; a database server
has one. A worker therefore uses the server's time, and adds the time since boot between two readings. No wall clock
decides who may write or which worker is dead.

A wall clock that jumps is not followed at once: see `holdfast.clock`. For a store on this machine, the belief about
its clock is stored, so that a program that starts while the clock is wrong detects that.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import cast

import msgspec

from holdfast.clock import BootTime, ClockBelief, SystemClock, WatchedClock, boot_id, update_belief
from holdfast.model.times import SECOND, Clock
from holdfast.store.database import Database, Transaction
from holdfast.store.repos import meta
from holdfast.store.sqlite.driver import SqliteDatabase
from holdfast.supervisor import Completed, ignore_cycle

log = logging.getLogger(__name__)

READ_SECONDS = 30.0
"""How often the server's clock is read."""
SAVE_SECONDS = 10.0
"""How often a changed belief about this machine's clock is saved."""
CONFIRM_SECONDS = 60.0
"""How long a process must have watched the clock before it saves its belief for others."""
MIN_LOGGED_SECONDS = 5 * SECOND
KEY = "clock"


async def open_clock(database: Database) -> "LocalClock | ServerClock":
    """The clock of this machine for a SQLite store, of the server for a PostgreSQL store."""
    if isinstance(database, SqliteDatabase):
        return await LocalClock.open(database)
    clock = ServerClock(SystemClock(), database, BootTime())
    await clock.read_server()
    return clock


class SavedClock(msgspec.Struct, frozen=True):
    """The belief about a machine's clock, and the boot for which it is valid."""

    boot: str
    belief: ClockBelief


def load_saved_belief(tx: Transaction, boot: str | None) -> ClockBelief | None:
    """The belief about this machine's clock that a process saved since boot; None if there is none."""
    kept = meta.get(tx, KEY)
    if kept is None or boot is None:
        return None
    found = msgspec.json.decode(kept, type=SavedClock)
    return found.belief if found.boot == boot else None


def clock_warning(tx: Transaction) -> str | None:
    """What is wrong with this machine's clock, judged by the belief that another process saved since boot."""
    belief = load_saved_belief(tx, boot_id())
    if belief is None:
        return None
    found, jump = update_belief(belief, SystemClock().now(), BootTime()())
    if found.other is None:
        return None
    return str(jump) if jump is not None else "the system clock has jumped; its new time is not trusted yet"


class LocalClock(WatchedClock):
    """The time of this machine. `work` saves the belief about its clock in the store."""

    def __init__(self, own: Clock, database: Database, boot: str | None, belief: ClockBelief | None) -> None:
        elapsed = BootTime()
        super().__init__(own, elapsed, belief)
        self._database = database
        self._boot = boot
        self._saved = belief
        self._began = elapsed()

    @classmethod
    async def open(cls, database: Database) -> "LocalClock":
        boot = boot_id()
        clock = cls(SystemClock(), database, boot, await database.read(load_saved_belief, boot))
        clock.now()
        if clock._saved is not None:
            await clock.save()
        return clock

    async def work(self, completed: Completed = ignore_cycle) -> None:
        """Save the belief whenever it changes, until cancelled. Raises every error."""
        while True:
            self.now()
            if self._saved is not None or self._elapsed() - self._began >= CONFIRM_SECONDS:
                await self.save()
            completed()
            await asyncio.sleep(SAVE_SECONDS)

    async def save(self) -> None:
        """Save the belief if it has changed."""
        belief = self.watch.belief
        if belief is None or self._boot is None or not _has_changed(belief, self._saved):
            return
        kept = msgspec.json.encode(SavedClock(self._boot, belief)).decode("ascii")
        await self._database.write(meta.put, KEY, kept)
        self._saved = belief


def _has_changed(belief: ClockBelief, saved: ClockBelief | None) -> bool:
    if saved is None:
        return True
    return abs(belief.offset - saved.offset) > MIN_LOGGED_SECONDS or belief.other_since != saved.other_since


class ServerClock(WatchedClock):
    """The time of the database server. Call `read_server` first, and periodically."""

    def __init__(self, own: Clock, database: Database, elapsed: Callable[[], float] | None = None) -> None:
        super().__init__(own, elapsed or own.monotonic)
        self._database = database
        self._has_logged = 0

    @property
    def ahead(self) -> int:
        """How far the server's clock is ahead of this machine's, in microseconds."""
        return self.now() - self._own.now()

    def now(self) -> int:
        belief = self.watch.belief
        assert belief is not None, "look is called before now"
        return belief.offset + int(self._elapsed() * SECOND)

    async def read_server(self) -> None:
        """Read the server's clock. A difference that the round trip can explain changes nothing."""
        began = self._elapsed()
        theirs = await self._database.read(_now)
        ended = self._elapsed()
        belief, took = self.watch.belief, int((ended - began) * SECOND)
        now = theirs + took // 2
        if belief is not None and belief.other is None and abs(now - self.now()) <= took:
            now = self.now()
        self.watch.observe(now, ended)
        self._log_difference(took)

    def _log_difference(self, took: int) -> None:
        """Log once that this machine's clock differs."""
        ahead = self.ahead
        if abs(ahead - self._has_logged) <= max(MIN_LOGGED_SECONDS, took):
            return
        off = "behind" if ahead > 0 else "ahead of"
        log.warning("this machine's clock is %.0f s %s the database server's, which is used", abs(ahead) / SECOND, off)
        self._has_logged = ahead

    async def work(self, completed: Completed = ignore_cycle) -> None:
        """Read the server's clock periodically, until cancelled. Raises every error."""
        while True:
            await self.read_server()
            completed()
            await asyncio.sleep(READ_SECONDS)


def _now(tx: Transaction) -> int:
    row = tx.one("driver.get_time")
    assert row is not None
    return cast("int", row[0])
