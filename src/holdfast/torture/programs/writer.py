"""Writes as fast as it can, to its own session and to sessions that other processes want too.

Each message carries the worker's id and the number of the message in its session, so that a lost, doubled or reordered
one is noticed. A replacement for a killed worker first declares that worker dead, then tries to write with its leases.
"""

import asyncio
import random
from collections.abc import Iterator
from itertools import count

from holdfast.clock import SystemClock
from holdfast.model.errors import Busy, LeaseLost
from holdfast.model.event import SessionOpened, UserSaid
from holdfast.model.ids import SESSION, WORKER, Ids
from holdfast.model.message import Text
from holdfast.model.session import Session
from holdfast.store.database import Database
from holdfast.store.repos import leases, log, sessions, workers
from holdfast.store.repos.leases import Lease
from holdfast.tasks import run_all
from holdfast.torture.child import Commands, Parameters, emit, main, register

APPENDS = 3
"""Messages to a shared session before its lease is released."""
MAX_PAUSE = 0.01
LATE = "late"
"""The number of a message that is written with the lease of a dead worker."""


class StormWriter:
    def __init__(self, database: Database, commands: Commands) -> None:
        self._database = database
        self._commands = commands
        self._clock = SystemClock()
        self._ids = Ids(self._clock.now)
        self._numbers: dict[str, Iterator[int]] = {}
        self.worker = self._ids.make(WORKER)

    async def start(self) -> None:
        await register(self._database, self.worker)
        emit(worker=self.worker)

    async def replace(self, dead: str, held: list[list[object]]) -> None:
        """Declare a killed worker dead, and try to write with the leases it held."""
        await self._database.write(workers.mark_dead, dead, "killed", at=self._clock.now())
        for session_id, worker_id, token in held:
            try:
                await self._append(Lease(str(session_id), str(worker_id), int(str(token))), LATE)
            except LeaseLost:
                emit(late="refused")
            else:
                emit(late="written")

    async def write_to_own(self) -> None:
        session_id = self._ids.make(SESSION)
        await self._create(session_id)
        lease = await self._take(session_id)
        while not self._commands.pending:
            await self._write(lease)
        await self._database.write(leases.release, lease)

    async def write_to_shared(self, session_id: str) -> None:
        await self._create(session_id)
        while not self._commands.pending:
            try:
                lease = await self._take(session_id)
            except Busy:
                await asyncio.sleep(random.uniform(0, MAX_PAUSE))
                continue
            for _ in range(APPENDS):
                await self._write(lease)
            await self._database.write(leases.release, lease)

    async def _create(self, session_id: str) -> None:
        await self._database.write(sessions.create, session_id, SessionOpened(source="run"), at=self._clock.now())

    async def _take(self, session_id: str) -> Lease:
        lease = await self._database.write(leases.take, session_id, self.worker)
        emit(held=[lease.session_id, lease.worker_id, lease.token])
        return lease

    async def _write(self, lease: Lease) -> None:
        number = next(self._numbers.setdefault(lease.session_id, count(1)))
        session = await self._append(lease, str(number))
        emit(written=f"{self.worker} {number}", head=[session.id, session.seq, session.hash])

    async def _append(self, lease: Lease, number: str) -> Session:
        message = UserSaid(turn_id=lease.worker_id, parts=(Text(f"{lease.worker_id} {number}"),))
        return await self._database.write(log.append, lease, [message], at=self._clock.now())


async def write_messages(database: Database, parameters: Parameters, commands: Commands) -> None:
    writer = StormWriter(database, commands)
    await writer.start()
    if parameters.get("dead"):
        await writer.replace(parameters["dead"], parameters["held"])
    await run_all(writer.write_to_own(), *map(writer.write_to_shared, parameters["shared"]))
    await database.write(workers.mark_dead, writer.worker, "it left", at=SystemClock().now())


if __name__ == "__main__":
    main(write_messages)
