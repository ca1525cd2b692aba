"""Finds out which sessions of this worker have queued input, with one read for all turns that ask at the same time.

The store notifies a turn of every change in its session, also of its own drafts; SQLite even notifies all turns of any
commit of another process. A read for each of them would cost more than the streams themselves.
"""

import asyncio

from holdfast.store.database import Database
from holdfast.store.repos import input_queue


class InputWatch:
    """One per worker."""

    def __init__(self, database: Database, worker_id: str) -> None:
        self._database = database
        self._worker_id = worker_id
        self._next: asyncio.Future[frozenset[str] | None] | None = None
        """The result of the read that has not begun yet; None if that read fails."""

    async def has_input(self, session_id: str) -> bool:
        """Whether input may be queued for a session of this worker, according to a read that begins now or later."""
        found = await (self._read() if self._next is None else asyncio.shield(self._next))
        return found is None or session_id in found

    async def _read(self) -> frozenset[str]:
        reading = self._next = asyncio.get_running_loop().create_future()
        found: frozenset[str] | None = None
        try:
            await asyncio.sleep(0)  # for the others that were notified at the same time
            self._next = None
            found = await self._database.read(input_queue.list_sessions, self._worker_id)
        finally:
            self._next = None if self._next is reading else self._next
            reading.set_result(found)
        return found
