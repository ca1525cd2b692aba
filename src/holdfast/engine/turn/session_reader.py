"""Reads a session from the store: what a worker keeps of it in memory, verified, page by page.

A page is read and decoded in a reader's thread, and the event loop runs between two pages, so that a long log delays no
other session. Events are not kept: the context keeps their messages, and the tail those of the newest turn.
"""

import asyncio
from collections.abc import Callable, Sequence

import msgspec

from holdfast.engine.context.context import Context
from holdfast.engine.turn.request import RequestFrame
from holdfast.model.entry import GENESIS, Entry
from holdfast.model.errors import Corrupt
from holdfast.model.event import Event, TurnEnded, TurnStarted
from holdfast.model.session import Session
from holdfast.store.database import Database, Transaction
from holdfast.store.repos import log, sessions
from holdfast.store.repos.log import LogHead

PAGE = 200
"""Events per read: about 2 ms. While a thread decodes, every other thread of the process waits."""


class CachedSession(msgspec.Struct, eq=False):
    """What a worker keeps of a session between turns."""

    context: Context
    tail: list[Entry]
    """The log from the end of the newest ended turn on."""
    opened: Event | None = None
    """The first event."""
    head: LogHead | None = None
    """The last event that was verified or written here; None if it is not known."""
    frame: RequestFrame | None = None
    """The system text, tools and options of the last request."""

    @property
    def seen(self) -> int:
        """The number of the last event in memory."""
        return self.tail[-1].seq if self.tail else 0

    @property
    def can_be_unloaded(self) -> bool:
        """Whether the log can restore all that is dropped: no turn is open, and the head is known."""
        return self.head is not None and not any(isinstance(entry.event, TurnStarted) for entry in self.tail)

    def add(self, entries: Sequence[Entry]) -> None:
        """Apply more events, in order."""
        if self.opened is None and entries:
            self.opened = entries[0].event
        self.tail.extend(entries)
        for entry in entries:
            self.context.add(entry)


def cut_tail(entries: Sequence[Entry]) -> list[Entry]:
    """The entries from the end of the newest ended turn on. Without turns, the last one."""
    start = len(entries) - 1
    for index in range(len(entries) - 1, -1, -1):
        event = entries[index].event
        if isinstance(event, TurnEnded | TurnStarted):
            start = index
        if isinstance(event, TurnEnded):
            break
    return list(entries[max(start, 0) :])


async def read_session(database: Database, session_id: str) -> CachedSession:
    """Read the whole log of a session. Raises NotFound, or Corrupt with the position: an incomplete log is never returned.

    Messages that a summary has replaced are dropped on the way, unless a later event needs them.
    """
    cached = CachedSession(Context(), [])
    session = await _read_pages(database, session_id, lambda page: _add_page(cached, page, trims=True))
    if cached.context.is_incomplete:
        cached = CachedSession(Context(), [])
        session = await _read_pages(database, session_id, lambda page: _add_page(cached, page, trims=False))
    cached.head = LogHead(session_id, session.seq, session.hash)
    return cached


async def restore(database: Database, session_id: str, outline: CachedSession) -> CachedSession:
    """Restore an unloaded session: reads the log from the oldest message in view on, not what is before it.

    Verified are the events that are read, and that the one up to which this process has verified the log is unchanged.
    Raises as `read_session` does.
    """
    head, context = outline.head, outline.context
    assert head is not None, "only a session with a known head is unloaded"
    before, since = Context(), list[Entry]()

    def add_page(page: Sequence[Entry]) -> None:
        for entry in page:
            if entry.seq == head.seq and entry.hash != head.hash:
                raise Corrupt(f"session {session_id}: event {entry.seq} was changed since it was verified")
            if entry.seq > head.seq:
                since.append(entry)
            else:
                before.add(entry)

    session = await _read_pages(database, session_id, add_page, first=context.needed_from)
    if session.seq < head.seq:
        raise Corrupt(f"session {session_id}: event {head.seq} was verified and is missing now")
    context.reload(before)
    outline.add(since)
    outline.tail = cut_tail(outline.tail)
    outline.head = LogHead(session_id, session.seq, session.hash)
    return outline if not context.is_incomplete else await read_session(database, session_id)


async def read_context(database: Database, session_id: str, *, upto: int) -> Context:
    """Read the context after an event, with every message."""
    context = Context()

    def add_page(page: Sequence[Entry]) -> None:
        for entry in page:
            if entry.seq <= upto:
                context.add(entry)
        context.estimate_size(0)

    await _read_pages(database, session_id, add_page)
    return context


def _add_page(cached: CachedSession, page: Sequence[Entry], *, trims: bool) -> None:
    cached.add(page)
    cached.tail = cut_tail(cached.tail)
    if trims:
        cached.context.trim()
    cached.context.estimate_size(0)  # here, because it may take a while


async def _read_pages(
    database: Database, session_id: str, add_page: Callable[[Sequence[Entry]], None], *, first: int = 1
) -> Session:
    """Pass the log from `first` to its end to the function, in pages. Raises Corrupt unless it ends as the session's row says."""

    def work(tx: Transaction, first: int) -> tuple[Session, list[Entry], int]:
        session = sessions.get(tx, session_id)
        is_last = session.seq < first + PAGE
        entries = log.read_verified(tx, session_id, log.TO_THE_END if is_last else first + PAGE - 1, first=first)
        stored = first + len(entries) - 1
        if is_last and (stored, entries[-1].hash if entries else GENESIS) != (session.seq, session.hash):
            row = f"its row names event {session.seq} with another hash"
            raise Corrupt(f"session {session_id}: {stored} events are stored, but {row}")
        return session, entries, 0 if is_last else first + PAGE

    try:
        while True:
            # The store may repeat a read, so only its result counts.
            session, page, first = await database.read(work, first)
            await asyncio.to_thread(add_page, page)
            if not first:
                return session
    except Corrupt:
        await database.read(sessions.get, session_id)  # between two pages the session may have been deleted: NotFound
        raise
