"""A framework's session as a Holdfast session: found by its name, written by one process at a time.

A process takes the session's lease with its first write, and keeps it until it releases the session or has not used it
for 30 seconds. A second process that writes waits for a while, and then gets Busy with the name of the holder. If another
process has written since this one read the session, a write raises Conflict instead of continuing a history that its
caller has not seen. Every write is durable when it returns.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from typing import TypeVar, cast
from urllib.parse import quote

import msgspec

from holdfast.adapters.loop_results import result_on_loop
from holdfast.adapters.shared_store import SharedStore
from holdfast.engine.liveness.dead_workers import mark_dead_holder
from holdfast.model.errors import Busy, Conflict, DeclaredDead, Invalid, LeaseLost
from holdfast.model.event import Event, ItemAdded, Reopened, Rewound, SessionOpened, Trashed
from holdfast.model.framework.item import CHANNEL
from holdfast.model.ids import SESSION
from holdfast.model.session import Session
from holdfast.store.database import Transaction
from holdfast.store.repos import aliases, leases, log, sessions
from holdfast.store.repos.leases import Lease
from holdfast.store.repos.log import LogHead
from holdfast.tasks import run_to_completion

T = TypeVar("T")
WAIT_SECONDS = 10.0
"""How long a write waits for a session that another process holds."""
FIRST_PAUSE, LONGEST_PAUSE = 0.02, 0.5
HISTORY = (ItemAdded, Rewound, Trashed)
"""Events that change what a framework has read."""
REOPENED = Reopened(reason="its framework continued it")
DELETED = Trashed(reason="deleted by its framework")
NONE_FREE = (Busy, LeaseLost, DeclaredDead)
"""Errors of a write that may succeed later, or with a new lease."""

Decide = Callable[[Transaction, Session], Sequence[Event]]
"""Chooses the events of a write, given the session as it is. It may run twice, and must not change the session otherwise."""
View = Callable[[Transaction, Session | None], T]
"""Reads from the session, or from none."""


class SeenHead(msgspec.Struct, frozen=True):
    """The newest event that this process has read or written. Before the first one, the id is empty."""

    session_id: str = ""
    seq: int = 0


class WriteRequest(msgspec.Struct, frozen=True):
    """What a write needs to take the session: its name, the worker, and what was read before."""

    opened: SessionOpened
    new_id: str
    worker_id: str
    at: int
    seen: SeenHead | None
    creates: bool
    parent: str | None
    """The channel of the session that a new one belongs to."""


class Written(msgspec.Struct, frozen=True):
    """The state after a write. The events are those that it appended; without a lease, the session is not held."""

    lease: Lease | None
    head: SeenHead
    events: Sequence[Event]
    before: LogHead
    after: LogHead


class FrameworkSession:
    """A session of one adapter, shared by all objects of this process that use it. Get it with `framework_session`."""

    def __init__(self, store: SharedStore, channel: str, *, parent: str | None, is_shared: bool) -> None:
        self.channel = channel
        self._parent = parent
        self._is_shared = is_shared
        self.used_at = time.monotonic()
        self._lease: Lease | None = None
        self._seen: SeenHead | None = None
        self._store = store
        self._opened = SessionOpened(source="library", channel=channel)

    async def write(self, decide: Decide, *, creates: bool = True) -> Written | None:
        """Commit the events that `decide` returns; None if the session does not exist and is not to be created.

        Raises Busy, Conflict, and NotSaved if they could not be made durable. A cancelled caller still waits for the end.
        """
        await self._store.wait_until_open()
        try:
            return await settle(self._start_write(decide, creates=creates))
        except NONE_FREE:
            return await settle(self._store.submit(self._write_patiently(decide, creates=creates)))

    def write_now(self, decide: Decide, *, creates: bool = True) -> Written | None:
        """Like `write`, for callers without an event loop."""
        try:
            return self._start_write(decide, creates=creates).result()
        except NONE_FREE:
            return self._store.submit(self._write_patiently(decide, creates=creates)).result()

    async def read(self, view: View[T]) -> T:
        """What `view` finds in one snapshot with every write acknowledged before."""
        await self._store.wait_until_open()
        return (await settle(self._start_read(view)))[1]

    def read_now(self, view: View[T]) -> T:
        """Like `read`, for callers without an event loop."""
        return self._start_read(view).result()[1]

    def release(self) -> Future[bool]:
        """Release the session, so that another process can write to it at once."""
        lease, self._lease = self._lease, None
        self._store.held.pop(self.channel, None)
        if lease is None:
            nothing: Future[bool] = Future()
            nothing.set_result(False)
            return nothing
        return self._store.database.submit_write(leases.release, lease)

    def _start_write(self, decide: Decide, *, creates: bool) -> Future[Written | None]:
        self.used_at = time.monotonic()
        app, lease = self._store.app, self._lease
        future: Future[Written | None]
        if lease is not None:
            future = self._store.database.submit_write(_write, lease, decide, at=app.clock.now())
        else:
            worker_id, at = self._store.services.worker_id, app.clock.now()
            request = WriteRequest(
                self._opened, app.ids.make(SESSION), worker_id, at, self._seen, creates, self._parent
            )
            work = _write_shared if self._is_shared else _take_and_write
            future = self._store.database.submit_write(work, request, decide)
        future.add_done_callback(self._note_written)
        return future

    def _note_written(self, future: Future[Written | None]) -> None:
        error = future.exception()
        if isinstance(error, LeaseLost):
            self._lease = None
        if error is None and (written := future.result()) is not None:
            self._lease, self._seen = written.lease, written.head
            if written.lease is not None:
                self._store.held[self.channel] = self
            else:
                self._store.held.pop(self.channel, None)

    async def _write_patiently(self, decide: Decide, *, creates: bool) -> Written | None:
        """Write as soon as no other process holds the session. On the event loop of the store."""
        deadline, pause = time.monotonic() + WAIT_SECONDS, FIRST_PAUSE
        while True:
            try:
                return await asyncio.wrap_future(self._start_write(decide, creates=creates))
            except LeaseLost:
                self._lease = None
            except (Busy, DeclaredDead) as e:
                if isinstance(e, Busy) and e.session_id is not None and await self._free(e.session_id):
                    continue
                if time.monotonic() > deadline:
                    raise
                await asyncio.sleep(pause)
                pause = min(2 * pause, LONGEST_PAUSE)

    async def _free(self, session_id: str) -> bool:
        """Free the session if its holder is certainly gone."""
        services = self._store.services
        evidence = await mark_dead_holder(services.database, session_id, services.identity, at=services.clock.now())
        return evidence is not None

    def _start_read(self, view: View[T]) -> Future[tuple[SeenHead, T]]:
        self.used_at = time.monotonic()
        future = self._store.database.submit_read(_read, self.channel, view)
        if self._lease is None:
            future.add_done_callback(self._note_read)
        return future

    def _note_read(self, future: Future[tuple[SeenHead, T]]) -> None:
        if future.exception() is None and self._lease is None:
            self._seen = future.result()[0]


def framework_session(
    store: SharedStore, adapter: str, name: str, *, parent: str | None = None, is_shared: bool = False
) -> FrameworkSession:
    """The session of this name. It is created with the first write, as one that belongs to the session named `parent`.

    Several processes may write to a shared session in turn: nobody holds it between two writes, and what was read before
    is not compared.
    """
    if not name or not sessions.is_storable(name):
        raise Invalid(f"{name!r} cannot be the name of a session: it must be text without NUL characters")
    channel = channel_of(adapter, name)
    with store.lock:
        found = store.sessions.get(channel)
        if found is None:
            above = None if parent is None else channel_of(adapter, parent)
            found = store.sessions[channel] = FrameworkSession(store, channel, parent=above, is_shared=is_shared)
        return found


def channel_of(adapter: str, name: str) -> str:
    return f"{CHANNEL}:{adapter}:{name}"


def path_of(*words: str) -> str:
    """A name made of words that may contain any signs: a slash between them, and none in them."""
    return "/".join(quote(word, safe="") for word in words)


async def settle(future: Future[T]) -> T:
    """Wait for the result, also if the caller is cancelled meanwhile: it then knows that nothing is still being written."""
    try:
        return cast("T", await result_on_loop(future))
    except asyncio.CancelledError:
        if not future.done():
            await run_to_completion(result_on_loop(future))
        raise


# Inside transactions.


def _write(tx: Transaction, lease: Lease, decide: Decide, *, at: int) -> Written | None:
    before = log.lock_held(tx, lease)
    events = decide(tx, before)
    session = log.extend(tx, before, events, at=at)
    if not session.summary.trashed_at:
        return _written(lease, before, session, events)
    leases.release(tx, lease)  # the next write begins a new session
    return _written(None, before, session, events)


def _written(lease: Lease | None, before: Session, after: Session, events: Sequence[Event]) -> Written:
    head = SeenHead() if after.summary.trashed_at else SeenHead(after.id, after.seq)
    return Written(lease, head, events, LogHead.of(before), LogHead.of(after))


def _take_and_write(tx: Transaction, request: WriteRequest, decide: Decide) -> Written | None:
    if not request.creates and find(tx, request.opened.channel or "") is None:
        return None
    session, is_new = _open(tx, request)
    taken = sessions.take(tx, session.id, request.worker_id)
    if taken.session is not None:  # this process did not hold it
        if not is_new:
            _refuse_unseen(tx, session, request.seen)
        if session.summary.ended_at is not None:
            log.append(tx, taken.lease, [REOPENED], at=request.at)
    return _write(tx, taken.lease, decide, at=request.at)


def _write_shared(tx: Transaction, request: WriteRequest, decide: Decide) -> Written | None:
    before = _lock_shared(tx, request.opened.channel or "")
    if before is None:
        if not request.creates:
            return None
        session, _ = _open(tx, request)
        before = log.lock_unheld(tx, session.id)
    events = decide(tx, before)
    after = _extend_shared(tx, before, events, at=request.at)
    return _written(None, before, after, events)


def _lock_shared(tx: Transaction, channel: str) -> Session | None:
    """The current session of the channel, locked; None if there is none, or if it is in the trash."""
    current = aliases.get_channel_session(tx, channel)
    session = None if current is None else log.lock_unheld(tx, current)
    return None if session is None or session.summary.trashed_at is not None else session


def append_shared(tx: Transaction, session: Session, events: Sequence[Event], *, at: int) -> Session:
    """Append to a session that nobody holds between two writes."""
    return _extend_shared(tx, log.lock_unheld(tx, session.id), events, at=at)


def _extend_shared(tx: Transaction, session: Session, events: Sequence[Event], *, at: int) -> Session:
    if session.summary.ended_at is not None:
        events = [REOPENED, *events]
    return log.extend(tx, session, events, at=at)


def _open(tx: Transaction, request: WriteRequest) -> tuple[Session, bool]:
    """The session, and whether it is new."""
    opened = request.opened
    if request.parent is not None and (parent := find(tx, request.parent)) is not None:
        opened = msgspec.structs.replace(opened, side_of=parent.id)
    return sessions.create_for_channel(tx, request.new_id, opened, at=request.at)


def _refuse_unseen(tx: Transaction, session: Session, seen: SeenHead | None) -> None:
    """Raise Conflict if the history has changed since this process read it."""
    if seen is None or seen == SeenHead(session.id, session.seq):
        return
    later = log.read(tx, session.id, first=seen.seq + 1) if seen.session_id == session.id else None
    if later is None or any(isinstance(entry.event, HISTORY) for entry in later):
        raise Conflict(
            f"another process has written to session {session.id} since this one read it; nothing was written. Read it again"
        )


def _read(tx: Transaction, channel: str, view: View[T]) -> tuple[SeenHead, T]:
    session = find(tx, channel)
    return SeenHead() if session is None else SeenHead(session.id, session.seq), view(tx, session)


def find(tx: Transaction, channel: str) -> Session | None:
    """The current session of the channel; None if there is none, or if it is in the trash."""
    current = aliases.get_channel_session(tx, channel)
    session = None if current is None else sessions.get(tx, current)
    return None if session is None or session.summary.trashed_at is not None else session


def constant(events: Sequence[Event]) -> Decide:
    """Always these events."""
    return partial(_given, events)


def _given(events: Sequence[Event], tx: Transaction, session: Session) -> Sequence[Event]:
    return events
