"""The sessions in the memory of a worker: the active ones, and recent ones, so that no turn reads a whole log again.

The cache decides nothing: a worker that takes up a session reads what was added since. A log is verified when it is first
loaded, so a session in memory is known to be complete. Of a session that is evicted, an outline stays: what
cannot be read from the end of the log, and up to where the log was verified.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from weakref import WeakValueDictionary

from holdfast.engine.admission.admit import Admission
from holdfast.engine.context.context import Context
from holdfast.engine.services import EngineServices
from holdfast.engine.streaming.bus import LiveText
from holdfast.engine.turn.active_session import ActiveSession
from holdfast.engine.turn.session_reader import CachedSession, cut_tail, read_context, read_session, restore
from holdfast.model.entry import Entry
from holdfast.model.session import Session
from holdfast.model.turn import turn_of
from holdfast.store.database import Transaction
from holdfast.store.repos import input_queue, log, sessions
from holdfast.store.repos.input_queue import Input
from holdfast.store.repos.leases import Lease
from holdfast.store.repos.log import LogHead

MAX_SESSIONS = 256
MAX_BYTES = 256_000_000
"""Estimated memory of all cached sessions: about half a million short messages."""
MAX_OUTLINES = 4_096
MAX_OUTLINE_BYTES = 32_000_000
MANY = 5_000
"""From this many events on, a context is built in a thread, so that no other session has to wait."""


class SizedCache:
    """Sessions in the order of their last use, with the sum of their estimated bytes."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, tuple[CachedSession, int]] = OrderedDict()
        self.bytes = 0

    def __contains__(self, session_id: str) -> bool:
        return session_id in self._kept

    def put(self, session_id: str, cached: CachedSession) -> None:
        self.pop(session_id)
        size = cached.context.memory_bytes
        self._kept[session_id] = cached, size
        self.bytes += size

    def pop(self, session_id: str) -> CachedSession | None:
        cached, size = self._kept.pop(session_id, (None, 0))
        self.bytes -= size
        return cached

    def pop_oldest(self, count: int, size: int) -> tuple[str, CachedSession] | None:
        """Remove the oldest while there are more than `count`, or they take more than `size` bytes; never the newest."""
        if len(self._kept) < 2 or (len(self._kept) <= count and self.bytes <= size):
            return None
        oldest = next(iter(self._kept))
        cached = self.pop(oldest)
        assert cached is not None
        return oldest, cached


class SessionCache:
    """One per worker. It keeps the sessions used last, up to a limit; the newest one stays even if it alone is larger."""

    def __init__(self, services: EngineServices) -> None:
        self._services = services
        self.active: dict[str, ActiveSession] = {}
        """The sessions that this worker runs now."""
        self._cached = SizedCache()
        self._outlines = SizedCache()
        self._reading: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        """By session: it is read once, also if several requests need it."""

    def is_active(self, session_id: str) -> bool:
        """Whether this worker runs the session, so that its events are published here."""
        return session_id in self.active

    def is_verified(self, session_id: str) -> bool:
        """Whether the session's log is known to be complete."""
        return session_id in self.active or session_id in self._cached

    async def verify(self, session_id: str, mark_dead_holder: Callable[[str], Awaitable[object]]) -> None:
        """Verify the log of a session that no live worker holds. Raises Corrupt, or NotFound if there is no such session."""
        session = await self._services.database.read(sessions.get, session_id)
        if self.is_verified(session_id):
            return
        if session.lease_worker is not None and await mark_dead_holder(session_id) is None:
            return  # the holder has verified it
        async with self._reading.setdefault(session_id, asyncio.Lock()):
            if not self.is_verified(session_id):
                self._put(session_id, await self.read(session_id))

    def streamed(self, session_id: str) -> list[LiveText]:
        """The text so far of the reply that is being streamed, if this worker runs the session."""
        active = self.active.get(session_id)
        return [] if active is None or active.so_far is None else [active.so_far]

    def keep(self, active: ActiveSession) -> None:
        """Cache a session after its turn."""
        session, context = active.session, active.context
        if context.is_incomplete:
            return
        context.trim()
        has_all = active.seen == session.seq
        head = LogHead(active.id, session.seq, session.hash) if has_all else None
        self._put(active.id, CachedSession(context, cut_tail(active.entries), active.opened, head, active.frame))

    def _put(self, session_id: str, cached: CachedSession) -> None:
        self._outlines.pop(session_id)
        self._cached.put(session_id, cached)
        while (oldest := self._cached.pop_oldest(MAX_SESSIONS, MAX_BYTES)) is not None:
            if oldest[1].can_be_unloaded:
                oldest[1].context.unload()
                self._outlines.put(*oldest)
        while self._outlines.pop_oldest(MAX_OUTLINES, MAX_OUTLINE_BYTES) is not None:
            pass

    async def read(self, session_id: str) -> CachedSession:
        """Read a session that is not cached: what is in view if there is an outline of it, else the whole log."""
        outline = self._outlines.pop(session_id)
        if outline is None:
            return await read_session(self._services.database, session_id)
        return await restore(self._services.database, session_id, outline)

    async def load(self, lease: Lease, began: Admission | None = None, *, may_recover: bool = False) -> ActiveSession:
        """Load the session. Only what is not cached is read from the store.

        `began` is the admission of a turn that has just begun. With `may_recover` the open turn may be that of a dead worker.
        """
        cached = self._cached.pop(lease.session_id)  # the caller goes on adding to it
        if cached is None and began is None and may_recover:
            # The recovery of a dead worker's turn is recorded before any work that may have killed that worker.
            return await load_log(self._services, lease)
        is_new = cached is None and began is not None and began.entries[0].seq == 1
        if cached is None:
            cached = CachedSession(Context(), []) if is_new else await self.read(lease.session_id)
        if began is not None and began.entries[0].seq == cached.seen + 1:
            active = activate(self._services, lease, began.session, cached, began.entries)
            if active.context.is_incomplete:
                await complete_context(active)
            return active
        return await load(self._services, lease, cached)


async def build_context(active: ActiveSession) -> None:
    """Build the context of a session that was loaded without it."""

    def build() -> Context:
        context = Context(active.entries)
        context.estimate_size(0)  # here, because it may take a while
        return context

    active.context = await asyncio.to_thread(build) if len(active.entries) > MANY else build()
    active.lacks_context = False


async def complete_context(active: ActiveSession) -> None:
    """Read the messages that the context has dropped, after an event has referred to one of them."""
    active.context = await read_context(active.services.database, active.id, upto=active.seen)


def activate(
    services: EngineServices, lease: Lease, session: Session, cached: CachedSession, added: Sequence[Entry]
) -> ActiveSession:
    """The active session, from the cached one and what was added since."""
    cached.add(added)
    cached.context.estimate_size(0)  # here, because it may take a while
    assert cached.opened is not None, "a log has a first event"
    turn = turn_of(cached.tail)
    return ActiveSession(services, lease, session, cached.tail, cached.context, turn, cached.opened, frame=cached.frame)


async def load_log(services: EngineServices, lease: Lease) -> ActiveSession:
    """Load a session with its whole log, verified, and an empty context: see `build_context`."""

    def work(tx: Transaction) -> tuple[Session, list[Entry], list[Input]]:
        session = sessions.get(tx, lease.session_id)
        return session, log.read_complete(tx, session), input_queue.list_waiting(tx, session.id)

    session, entries, queued = await services.database.read(work)
    turn, opened = turn_of(entries), entries[0].event
    active = ActiveSession(services, lease, session, entries, Context(), turn, opened, lacks_context=True)
    active.set_queue(queued)
    return active


async def load_unheld(services: EngineServices, session_id: str) -> ActiveSession:
    """Load a session that this worker does not hold, to look at it: the store would refuse every write. Raises Corrupt."""
    cached = await read_session(services.database, session_id)
    session = await services.database.read(sessions.get, session_id)
    return activate(services, Lease(session_id, worker_id="", token=0), session, cached, [])


async def load(services: EngineServices, lease: Lease, cached: CachedSession) -> ActiveSession:
    """Load a session that was cached or read: what was added since is read."""

    def work(tx: Transaction) -> tuple[Session, list[Entry], list[Input]]:
        session = sessions.get(tx, lease.session_id)
        added = log.read(tx, session.id, first=cached.seen + 1)
        return session, added, input_queue.list_waiting(tx, session.id, running=session.summary.open_turn)

    session, added, queued = await services.database.read(work)
    if len(added) > MANY:
        active = await asyncio.to_thread(activate, services, lease, session, cached, added)
    else:
        active = activate(services, lease, session, cached, added)
    if active.context.is_incomplete:
        await complete_context(active)
    active.set_queue(queued)
    return active
