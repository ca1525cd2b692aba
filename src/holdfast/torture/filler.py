"""A program that fills the disk its store is on, sees what it is told, makes room again, and goes on.

The disk is a small one that was mounted for it or, where that is not allowed, a limit on the size of files.
"""

import resource
from pathlib import Path

from holdfast.clock import SystemClock
from holdfast.model.errors import NotSaved
from holdfast.model.event import SessionOpened, UserSaid
from holdfast.model.ids import SESSION, WORKER, Ids
from holdfast.model.message import Text
from holdfast.store import leases, log, sessions
from holdfast.store.database import Database
from holdfast.store.leases import Lease
from holdfast.torture.child import Given, Orders, main, register, say

MEGABYTE = 1 << 20
BALLAST = 18 * MEGABYTE
"""More than the store's own journal can hold, since all of that moves into its file later."""
LARGEST = 6 * MEGABYTE
"""How large files may grow where no disk can be mounted: less than at what the store moves its journal."""
SIZES = (100_000, 10_000, 100)
PATIENCE = 2_000
"""Messages that there cannot possibly be room for."""


class Filler:
    def __init__(self, database: Database, folder: Path, *, mounted: bool) -> None:
        self._database = database
        self._ballast = folder / "ballast"
        self._mounted = mounted
        self._limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        self._clock = SystemClock()
        self._number = 0

    def make_tight(self) -> None:
        if self._mounted:
            self._ballast.write_bytes(b"x" * BALLAST)
        else:
            resource.setrlimit(resource.RLIMIT_FSIZE, (LARGEST, self._limits[1]))

    def make_room(self) -> None:
        if self._mounted:
            self._ballast.unlink()
        else:
            resource.setrlimit(resource.RLIMIT_FSIZE, self._limits)

    async def session(self) -> Lease:
        ids = Ids(self._clock.now)
        worker, session_id, at = ids.make(WORKER), ids.make(SESSION), self._clock.now()
        await register(self._database, worker)
        await self._database.write(sessions.create, session_id, SessionOpened(source="run"), at=at)
        return await self._database.write(leases.take, session_id, worker)

    async def fill(self, lease: Lease, size: int) -> None:
        """Write until that is refused; if it never is, what was acknowledged all the same will be missed."""
        for _ in range(PATIENCE):
            try:
                await self.append(lease, size)
            except NotSaved as e:
                return say(refused=type(e).__name__, size=size)
        return None

    async def append(self, lease: Lease, size: int) -> None:
        self._number += 1
        text = f"{self._number} ".ljust(size, "x")
        said = UserSaid(turn_id="turn-full", parts=(Text(text),))
        await self._database.write(log.append, lease, [said], at=self._clock.now())
        say(said=self._number)


async def fill(database: Database, given: Given, orders: Orders) -> None:
    filler = Filler(database, Path(given["folder"]), mounted=given["mounted"])
    lease = await filler.session()
    filler.make_tight()
    for size in SIZES:
        await filler.fill(lease, size)
    held = await database.read(log.read_whole, await database.read(sessions.get, lease.session_id))
    say(readable=len(held) - 1)
    filler.make_room()
    await filler.append(lease, SIZES[0])
    session = await database.read(sessions.get, lease.session_id)
    words = [entry.event for entry in await database.read(log.read_whole, session)][1:]
    say(stored=[int(event.parts[0].text.split()[0]) for event in words if isinstance(event, UserSaid)])  # type: ignore[union-attr] # it was written as text


if __name__ == "__main__":
    main(fill)
