"""A program that writes as fast as it can: to a session of its own, and to sessions that others want too.

Each message carries the worker's id and a number that grows, so that a lost, doubled or reordered one is
seen. A program started in the place of one that was killed buries it first and tries its old leases.
"""

import argparse
import asyncio
import random
import sys
from collections.abc import Iterator
from itertools import count
from pathlib import Path

from holdfast.clock import SystemClock
from holdfast.model.errors import Busy, LeaseLost
from holdfast.model.event import SessionOpened, UserSaid
from holdfast.model.ids import SESSION, WORKER, Ids
from holdfast.model.message import Text
from holdfast.model.session import Session
from holdfast.store import leases, log, sessions, sqlite, workers
from holdfast.store.database import Database
from holdfast.store.leases import Lease
from tests.crash.say import place_of, say
from tests.crash.writer import DATABASE, IDENTITY, VERSION

TASKS = 3
"""Appends under way at most: one to the own session, two to shared ones."""
APPENDS = 3
"""Appends to a shared session before it is given back."""
LONGEST_PAUSE = 0.005
LATE = 0
"""The number of a message in the name of the dead."""


class Hammer:
    def __init__(self, database: Database, worker: str) -> None:
        self._database = database
        self._worker = worker
        self._clock = SystemClock()
        self._numbers: dict[str, Iterator[int]] = {}
        self.stopped = asyncio.Event()

    async def start(self) -> None:
        now = self._clock.now()
        await self._database.write(workers.register, self._worker, "test", IDENTITY, version=VERSION, at=now)
        say(worker=self._worker)

    async def bury(self, dead: str, held: list[Lease]) -> None:
        """Take a dead worker's sessions from it, and try to write in its name all the same."""
        await self._database.write(workers.bury, dead, "killed", at=self._clock.now())
        for lease in held:
            try:
                await self._append(lease, LATE)
            except LeaseLost:
                say(late="refused")
            else:
                say(late="written")

    async def write_to_own(self, session_id: str) -> None:
        await self._create(session_id)
        lease = await self._take(session_id)
        while not self.stopped.is_set():
            await self._say(lease)
        await self._database.write(leases.release, lease)

    async def write_to_shared(self, session_id: str) -> None:
        await self._create(session_id)
        while not self.stopped.is_set():
            try:
                lease = await self._take(session_id)
            except Busy:
                await asyncio.sleep(random.uniform(0, LONGEST_PAUSE))
                continue
            for _ in range(APPENDS):
                await self._say(lease)
            await self._database.write(leases.release, lease)

    async def _create(self, session_id: str) -> None:
        opened = SessionOpened(source="run")
        await self._database.write(sessions.create, session_id, opened, at=self._clock.now())

    async def _take(self, session_id: str) -> Lease:
        lease = await self._database.write(leases.take, session_id, self._worker)
        say(held=[lease.session_id, lease.worker_id, lease.token])
        return lease

    async def _say(self, lease: Lease) -> None:
        number = next(self._numbers.setdefault(lease.session_id, count(1)))
        session = await self._append(lease, number)
        say(ack="said", places=[place_of(session)])

    async def _append(self, lease: Lease, number: int) -> Session:
        said = UserSaid(turn_id=lease.worker_id, parts=(Text(f"{lease.worker_id} {number}"),))
        return await self._database.write(log.append, lease, [said], at=self._clock.now())


async def main(given: argparse.Namespace) -> None:
    ids = Ids(SystemClock().now)
    database = await sqlite.open_sqlite(given.home / DATABASE)
    hammer = Hammer(database, ids.make(WORKER))
    loop = asyncio.get_running_loop()
    loop.add_reader(sys.stdin, hammer.stopped.set)  # a word, or the end of whoever started us
    loop.call_later(given.seconds, hammer.stopped.set)
    await hammer.start()
    if given.bury:
        await hammer.bury(given.bury, given.held)
    async with asyncio.TaskGroup() as group:
        group.create_task(hammer.write_to_own(ids.make(SESSION)))
        for session_id in given.shared:
            group.create_task(hammer.write_to_shared(session_id))
    await database.close()
    say(done=True)


def as_lease(text: str) -> Lease:
    session_id, worker_id, token = text.split(":")
    return Lease(session_id, worker_id, int(token))


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("home", type=Path)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--shared", nargs="+", default=[], help="sessions that others write to as well")
    parser.add_argument("--bury", help="a worker that was killed")
    parser.add_argument(
        "--held", nargs="*", type=as_lease, default=[], help="session:worker:token, as the dead one had them"
    )
    return parser.parse_args()


if __name__ == "__main__":
    asyncio.run(main(arguments()))
