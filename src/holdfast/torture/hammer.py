"""A program that writes as fast as it can: to a session of its own, and to sessions that others want too.

Each message carries the worker's id and a number that grows, so that one that is lost, doubled or out of place is seen. If
it takes the place of one that was killed, it buries that first, and then tries to write in its name.
"""

import asyncio
import random
from itertools import count

from holdfast.clock import SystemClock
from holdfast.engine.together import all_of
from holdfast.model.errors import Busy, LeaseLost
from holdfast.model.event import SessionOpened, UserSaid
from holdfast.model.ids import SESSION, WORKER, Ids
from holdfast.model.message import Text
from holdfast.store import leases, log, sessions, workers
from holdfast.store.database import Database
from holdfast.store.leases import Lease
from holdfast.torture.child import Given, Orders, main, register, say

APPENDS = 3
"""Messages to a shared session before it is given back."""
LONGEST_PAUSE = 0.01


class Hammer:
    def __init__(self, database: Database, orders: Orders) -> None:
        self._database = database
        self._orders = orders
        self._clock = SystemClock()
        self._ids = Ids(self._clock.now)
        self._numbers = count(1)
        self.worker = self._ids.make(WORKER)

    async def start(self) -> None:
        await register(self._database, self.worker)
        say(worker=self.worker)

    async def bury(self, dead: str, held: list[list[object]]) -> None:
        """Take a dead worker's sessions from it, and try to write in its name all the same."""
        await self._database.write(workers.bury, dead, "killed", at=self._clock.now())
        for session_id, worker_id, token in held:
            try:
                await self._append(Lease(str(session_id), str(worker_id), int(str(token))), "in the name of the dead")
            except LeaseLost:
                say(late="refused")

    async def write_to_own(self) -> None:
        session_id = self._ids.make(SESSION)
        await self._create(session_id)
        lease = await self._take(session_id)
        while not self._orders.waiting:
            await self._say(lease)
        await self._database.write(leases.release, lease)

    async def write_to_shared(self, session_id: str) -> None:
        await self._create(session_id)
        while not self._orders.waiting:
            try:
                lease = await self._take(session_id)
            except Busy:
                await asyncio.sleep(random.uniform(0, LONGEST_PAUSE))
                continue
            for _ in range(APPENDS):
                await self._say(lease)
            await self._database.write(leases.release, lease)

    async def _create(self, session_id: str) -> None:
        await self._database.write(sessions.create, session_id, SessionOpened(source="run"), at=self._clock.now())

    async def _take(self, session_id: str) -> Lease:
        lease = await self._database.write(leases.take, session_id, self.worker)
        say(held=[lease.session_id, lease.worker_id, lease.token])
        return lease

    async def _say(self, lease: Lease) -> None:
        text = f"{self.worker} {next(self._numbers)}"
        await self._append(lease, text)
        say(said=text, session=lease.session_id)

    async def _append(self, lease: Lease, text: str) -> None:
        said = UserSaid(turn_id=lease.worker_id, parts=(Text(text),))
        await self._database.write(log.append, lease, [said], at=self._clock.now())


async def hammer(database: Database, given: Given, orders: Orders) -> None:
    one = Hammer(database, orders)
    await one.start()
    if given.get("dead"):
        await one.bury(given["dead"], given["held"])
    await all_of(one.write_to_own(), *map(one.write_to_shared, given["shared"]))
    await database.write(workers.bury, one.worker, "it left", at=SystemClock().now())


if __name__ == "__main__":
    main(hammer)
