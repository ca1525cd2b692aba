"""The actions on a whole session, for every interface: rename, pin, fork, end, reopen, trash, restore.

If the worker that holds the session is certainly gone, its lease is released and the action is retried once.
"""

from collections.abc import Callable, Sequence
from typing import TypeVar

import msgspec

from holdfast.engine.liveness.dead_workers import mark_dead_holder
from holdfast.model.errors import Busy
from holdfast.model.event import ModelChanged, Source
from holdfast.model.ids import SESSION, Ids
from holdfast.model.mode import Mode
from holdfast.model.process_identity import Identity
from holdfast.model.session import Session
from holdfast.model.times import Clock
from holdfast.store.database import Database, Transaction
from holdfast.store.repos import aliases, log, session_forks, sessions

T = TypeVar("T")


class SessionActions(msgspec.Struct, frozen=True):
    """All of them raise Busy while a live worker holds the session, and NotFound if it does not exist."""

    database: Database
    clock: Clock
    ids: Ids
    ours: Identity

    async def bookmark(self, name: str, session_id: str) -> None:
        """Make the name refer to this session, until it is given to another."""
        await self.database.write(aliases.set_channel_session, name, session_id, at=self.clock.now())

    async def find_bookmark(self, name: str) -> str | None:
        """The session that the name refers to; None if there is none, or it is in the trash."""
        return await self.database.read(_find_bookmark, name)

    async def rename(self, session_id: str, title: str) -> Session:
        """Give the session a title. Raises Invalid if nothing of it is visible."""
        return await self.change(session_id, title=title)

    async def pin(self, session_id: str, *, pinned: bool) -> Session:
        """Pin or unpin the session."""
        return await self.change(session_id, pinned=pinned)

    async def pin_message(self, session_id: str, seq: int, *, pinned: bool) -> Session:
        """Pin or unpin a message, which keeps it in the context verbatim. Works while a worker holds the session. Raises Invalid if there is no such message."""
        at = self.clock.now()
        return await self.write(lambda tx: sessions.pin_message(tx, session_id, seq, pinned=pinned, at=at), session_id)

    async def set_mode(self, session_id: str, mode: Mode, *, by: str) -> Session:
        """Change the permission mode. Works while a worker holds the session, and holds for calls that have not started."""
        return await self.change(session_id, mode=mode, by=by)

    async def change(
        self,
        session_id: str,
        *,
        title: str | None = None,
        model: str | None = None,
        pinned: bool | None = None,
        mode: Mode | None = None,
        by: str = "",
    ) -> Session:
        """Change several properties, all or none; `by` is who changes the permission mode."""
        at = self.clock.now()

        def work(tx: Transaction) -> Session:
            if model is not None and model != sessions.get(tx, session_id).summary.model:
                log.append_unheld(tx, session_id, [ModelChanged(model=model)], at=at)
            if title is not None:
                sessions.rename(tx, session_id, title, at=at)
            if pinned is not None:
                sessions.pin(tx, session_id, pinned=pinned, at=at)
            if mode is not None:
                sessions.set_mode(tx, session_id, mode, by=by, at=at)
            return sessions.get(tx, session_id)

        return await self.write(work, session_id)

    async def fork(
        self, session_id: str, *, at_seq: int | None = None, source: Source | None = None, title: str | None = None
    ) -> Session:
        """A new session with the log of this one, or its part up to an event. Verifies the log before the write."""
        new_id, at = self.ids.make(SESSION), self.clock.now()
        shared = await self.database.read(session_forks.prepare_fork, session_id, at_seq)

        def work(tx: Transaction) -> Session:
            forked = session_forks.fork(tx, shared, new_id, at=at, source=source)
            return forked if title is None else sessions.rename(tx, new_id, title, at=at)

        return await self.database.write(work)

    async def end(self, session_id: str, *, detail: str = "") -> Session:
        """End the session; it keeps its content."""
        at = self.clock.now()
        return await self.write(lambda tx: sessions.end(tx, session_id, "user", at=at, detail=detail), session_id)

    async def reopen(self, session_id: str, *, reason: str) -> Session:
        """Open an ended or quarantined session again, with all its messages."""
        at = self.clock.now()
        return await self.write(lambda tx: sessions.reopen(tx, session_id, at=at, reason=reason), session_id)

    async def trash(self, session_id: str, *, reason: str) -> Session:
        """Move the session to the trash."""
        [trashed] = await self.trash_all([session_id], reason=reason)
        return trashed

    async def trash_all(self, session_ids: Sequence[str], *, reason: str) -> list[Session]:
        """Move the sessions to the trash, all or none."""
        at = self.clock.now()

        def work(tx: Transaction) -> list[Session]:
            return [sessions.trash(tx, session_id, at=at, reason=reason) for session_id in session_ids]

        return await self.write(work, *session_ids)

    async def restore(self, session_id: str) -> Session:
        """Restore the session from the trash."""
        at = self.clock.now()
        return await self.write(lambda tx: sessions.restore(tx, session_id, at=at), session_id)

    async def write(self, work: Callable[[Transaction], T], *session_ids: str) -> T:
        """Run a function in a transaction. If a dead worker holds one of the sessions, take it over and try again."""
        try:
            return await self.database.write(work)
        except Busy:
            if not any([await self.free_from_dead_holder(session_id) for session_id in session_ids]):
                raise
            return await self.database.write(work)

    async def free_from_dead_holder(self, session_id: str) -> bool:
        """Take the session from its holder if that worker is certainly gone; returns whether the session is free."""
        return await mark_dead_holder(self.database, session_id, self.ours, at=self.clock.now()) is not None


def _find_bookmark(tx: Transaction, name: str) -> str | None:
    session_id = aliases.get_channel_session(tx, name)
    if session_id is None or sessions.get(tx, session_id).summary.trashed_at is not None:
        return None
    return session_id
