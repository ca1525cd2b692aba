"""Leases when others commit between two of our statements."""

import asyncio
from typing import Any

from holdfast.clock import SystemClock
from holdfast.model.event import SessionOpened
from holdfast.model.ids import SESSION, WORKER, Ids
from holdfast.process_lookup import current_identity
from holdfast.store.database import Transaction
from holdfast.store.postgres.driver import PostgresDatabase
from holdfast.store.repos import leases, sessions, workers
from holdfast.store.repos.leases import Lease


class Interrupted:
    """A transaction that runs something else just before it reads the holder of a lease."""

    def __init__(self, inner: Transaction, before: Any) -> None:
        self._inner = inner
        self._before = before

    def one(self, query: str, **params: Any) -> Any:
        if query == "leases.get_holder" and self._before is not None:
            before, self._before = self._before, None
            before()
        return self._inner.one(query, **params)


async def test_a_session_whose_holder_is_declared_dead_while_it_is_requested_is_taken(
    database: PostgresDatabase,
) -> None:
    clock = SystemClock()
    ids = Ids(clock.now)
    dead, ours, session_id = ids.make(WORKER), ids.make(WORKER), ids.make(SESSION)
    for worker in (dead, ours):
        await database.write(workers.register, worker, "test", current_identity(), version="0", at=clock.now())
    await database.write(sessions.create, session_id, SessionOpened(source="run"), at=clock.now())
    await database.write(leases.take, session_id, dead)
    loop = asyncio.get_running_loop()

    def declare_dead() -> None:
        marking = database.write(workers.mark_dead, dead, "killed", at=clock.now())
        asyncio.run_coroutine_threadsafe(marking, loop).result(20)

    def take(tx: Transaction) -> Lease:
        return leases.take(Interrupted(tx, declare_dead), session_id, ours)  # type: ignore[arg-type]

    assert (await database.write(take)).worker_id == ours
