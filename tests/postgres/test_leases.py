"""Leases where others commit between two statements of ours."""

import asyncio
from typing import Any

from holdfast.clock import SystemClock
from holdfast.identity import identity
from holdfast.model.event import SessionOpened
from holdfast.model.ids import SESSION, WORKER, Ids
from holdfast.store import leases, sessions, workers
from holdfast.store.database import Transaction
from holdfast.store.leases import Lease
from holdfast.store.postgres import PostgresDatabase


class Interrupted:
    """A transaction in which something else happens just before the holder of a lease is looked up."""

    def __init__(self, inner: Transaction, before: Any) -> None:
        self._inner = inner
        self._before = before

    def one(self, query: str, **params: Any) -> Any:
        if query == "leases.holder" and self._before is not None:
            before, self._before = self._before, None
            before()
        return self._inner.one(query, **params)


async def test_a_session_whose_holder_is_buried_while_it_is_asked_for_is_taken(database: PostgresDatabase) -> None:
    clock = SystemClock()
    ids = Ids(clock.now)
    dead, ours, session_id = ids.make(WORKER), ids.make(WORKER), ids.make(SESSION)
    for worker in (dead, ours):
        await database.write(workers.register, worker, "test", identity(), version="0", at=clock.now())
    await database.write(sessions.create, session_id, SessionOpened(source="run"), at=clock.now())
    await database.write(leases.take, session_id, dead)
    loop = asyncio.get_running_loop()

    def bury() -> None:
        buried = database.write(workers.bury, dead, "killed", at=clock.now())
        asyncio.run_coroutine_threadsafe(buried, loop).result(20)

    def take(tx: Transaction) -> Lease:
        return leases.take(Interrupted(tx, bury), session_id, ours)  # type: ignore[arg-type]

    assert (await database.write(take)).worker_id == ours
