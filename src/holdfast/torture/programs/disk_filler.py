"""Fills the disk of its store until writes fail, reads everything, frees space, and writes again.

The disk is a small RAM disk. If mounting is not allowed, a limit on the size of files replaces it.
"""

import resource
from pathlib import Path

from holdfast.clock import SystemClock
from holdfast.model.errors import NotSaved
from holdfast.model.event import SessionOpened, UserSaid
from holdfast.model.ids import SESSION, WORKER, Ids
from holdfast.model.message import Text
from holdfast.store.database import Database
from holdfast.store.repos import leases, log, sessions
from holdfast.store.repos.leases import Lease
from holdfast.torture.child import Commands, Parameters, emit, main, register

MEGABYTE = 1 << 20
BALLAST = 18 * MEGABYTE
"""More than the WAL can hold when the disk is full: all of it moves into the database file later."""
MAX_FILE = 6 * MEGABYTE
"""The limit on the size of files without a mounted disk; below the size at which the store checkpoints its WAL."""
SIZES = (100_000, 10_000, 100)
MAX_MESSAGES = 2_000
"""More messages than the disk can hold."""


class DiskFiller:
    def __init__(self, database: Database, folder: Path, *, mounted: bool) -> None:
        self._database = database
        self._ballast = folder / "ballast"
        self._mounted = mounted
        self._limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        self._clock = SystemClock()
        self._number = 0

    def take_space(self) -> None:
        if self._mounted:
            self._ballast.write_bytes(b"x" * BALLAST)
        else:
            resource.setrlimit(resource.RLIMIT_FSIZE, (MAX_FILE, self._limits[1]))

    def free_space(self) -> None:
        if self._mounted:
            self._ballast.unlink()
        else:
            resource.setrlimit(resource.RLIMIT_FSIZE, self._limits)

    async def open_session(self) -> Lease:
        ids = Ids(self._clock.now)
        worker, session_id, at = ids.make(WORKER), ids.make(SESSION), self._clock.now()
        await register(self._database, worker)
        await self._database.write(sessions.create, session_id, SessionOpened(source="run"), at=at)
        return await self._database.write(leases.take, session_id, worker)

    async def fill(self, lease: Lease, size: int) -> None:
        """Append messages until the store refuses one. If it never does, the trial finds the acknowledged ones missing."""
        for _ in range(MAX_MESSAGES):
            try:
                await self.append(lease, size)
            except NotSaved as e:
                return emit(refused=type(e).__name__, size=size)
        return None

    async def append(self, lease: Lease, size: int) -> None:
        self._number += 1
        text = f"{self._number} ".ljust(size, "x")
        message = UserSaid(turn_id="turn-full", parts=(Text(text),))
        await self._database.write(log.append, lease, [message], at=self._clock.now())
        emit(written=self._number)


async def fill_disk(database: Database, parameters: Parameters, commands: Commands) -> None:
    filler = DiskFiller(database, Path(parameters["folder"]), mounted=parameters["mounted"])
    lease = await filler.open_session()
    filler.take_space()
    for size in SIZES:
        await filler.fill(lease, size)
    entries = await database.read(log.read_complete, await database.read(sessions.get, lease.session_id))
    emit(readable=len(entries) - 1)
    filler.free_space()
    await filler.append(lease, SIZES[0])
    session = await database.read(sessions.get, lease.session_id)
    events = [entry.event for entry in await database.read(log.read_complete, session)][1:]
    emit(stored=[int(event.parts[0].text.split()[0]) for event in events if isinstance(event, UserSaid)])  # type: ignore[union-attr] # append() wrote it as text


if __name__ == "__main__":
    main(fill_disk)
