"""Detects that the process that holds a session is stopped (Ctrl-Z), and says what to do about it."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from holdfast import process_lookup
from holdfast.model.process_identity import Identity
from holdfast.store.database import Database, Transaction
from holdfast.store.repos import sessions, workers
from holdfast.store.repos.workers import Worker
from holdfast.tasks import Tasks

CHECK_SECONDS = 2.0
"""How often the holder is checked."""


def hint(pid: int) -> str:
    """Why the turn does not continue, and what to do."""
    return (
        f"held by process {pid}, which is stopped (Ctrl-Z); continue it with `fg` there, or end it with `kill -9 {pid}`"
    )


def stopped_pid(worker: Worker | None, our_worker_id: str, ours: Identity) -> int | None:
    """The pid of the worker if it is another process on this machine and is stopped."""
    if worker is None or worker.id == our_worker_id or not process_lookup.is_stopped(worker.identity, ours):
        return None
    return worker.pid


@asynccontextmanager
async def watch(
    database: Database, session_id: str, our_worker_id: str, notify: Callable[[str], object]
) -> AsyncIterator[None]:
    """Within the block, notify once about each stopped process that holds the session."""
    tasks = Tasks()
    tasks.start(_watch(database, session_id, our_worker_id, notify), name=f"watch the holder of {session_id}")
    try:
        yield
    finally:
        await tasks.close()


async def _watch(database: Database, session_id: str, our_worker_id: str, notify: Callable[[str], object]) -> None:
    ours, reported = process_lookup.current_identity(), 0
    while True:
        worker = await database.read(_load_holder, session_id)
        pid = stopped_pid(worker, our_worker_id, ours) or 0
        if pid and pid != reported:
            notify(f"holdfast: session {session_id} is {hint(pid)}")
        reported = pid
        await asyncio.sleep(CHECK_SECONDS)


def _load_holder(tx: Transaction, session_id: str) -> Worker | None:
    worker_id = sessions.get(tx, session_id).lease_worker
    return None if worker_id is None else workers.get(tx, worker_id)
