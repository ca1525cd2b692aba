"""The session that a worker runs: its lease, the end of its log and its context in memory, and the only way to add to it."""

import asyncio
from collections.abc import Callable, Container, Iterator, Sequence
from contextlib import contextmanager
from functools import reduce

import msgspec

from holdfast.engine import outbound
from holdfast.engine.admission.turn_start import begin, reopening
from holdfast.engine.context.context import Context
from holdfast.engine.notifications import TopicListener
from holdfast.engine.services import EngineServices
from holdfast.engine.streaming.bus import LiveText, StreamItem
from holdfast.engine.turn.isolation import begins_work, wait_until_alone
from holdfast.engine.turn.request import RequestFrame
from holdfast.model.entry import Entry
from holdfast.model.event import Ended, Event, ModelSaid, TurnEnded
from holdfast.model.session import Session
from holdfast.model.turn import Turn, fold_turn
from holdfast.store.database import Transaction
from holdfast.store.repos import activity, approvals, client_history, input_queue, leases, log, turn_lookup
from holdfast.store.repos.input_queue import Input
from holdfast.store.repos.leases import Lease
from holdfast.tasks import run_to_completion


class ActiveSession(msgspec.Struct, eq=False):
    """One session while this worker holds its lease. Its commits run one after another."""

    services: EngineServices
    lease: Lease
    session: Session
    entries: list[Entry]
    """The end of the log, with at least the newest turn."""
    context: Context
    turn: Turn
    opened: Event
    """The first event of the log."""
    queued: list[Input] = msgspec.field(default_factory=list)
    """The input queue when it was last read: at each commit, and when the store notifies of a change."""
    said: str = ""
    """The streamed text of the reply so far."""
    asked: str = ""
    """The model that the current call asks, as `provider:name`; empty between calls."""
    notice: str = ""
    """Why and when the provider is called again; empty if it is not."""
    stop: asyncio.Event = msgspec.field(default_factory=asyncio.Event)
    """Set when the turn is to end: a person interrupted it."""
    released: bool = False
    """Whether the lease was released."""
    pause: asyncio.Event = msgspec.field(default_factory=asyncio.Event)
    """Set when this worker shuts down: the current step is finished, no other begun."""
    last: Container[str] = frozenset()
    """Turns after which this worker begins no other, because it shuts down."""
    inherited: bool = False
    """Whether the worker that would have ended the session is gone, so that this one ends it."""
    frame: RequestFrame | None = None
    """The system text, tools and options of the last request."""
    kept: str = ""
    """The part of `said` that is saved in the draft."""
    lacks_context: bool = False
    """Whether the context has not been built yet."""
    is_taken_up: bool = False
    """Whether this worker has begun the open turn or has recovered it."""
    at_work: bool = False
    """Whether the store records that this session is at work in this process."""
    is_alone: bool = False
    """Whether the store lets this session, and no other suspect, be at work."""
    isolated_turn: str = ""
    """The turn whose tools run only while those of no other suspect do."""
    id: str = ""
    """The session's id, which is that of the lease."""
    questions: int = 0
    """Questions of this turn that a person is asked at this moment."""
    _order: asyncio.Lock = msgspec.field(default_factory=asyncio.Lock)

    def __post_init__(self) -> None:
        self.id = self.lease.session_id

    @property
    def only_waits(self) -> bool:
        """Whether the turn does nothing but wait for the answer of a person."""
        return self.questions > 0 and not self.turn.started

    @contextmanager
    def asking(self) -> Iterator[None]:
        """While a person is asked: nothing is lost if this worker leaves the turn."""
        self.questions += 1
        try:
            yield
        finally:
            self.questions -= 1

    async def commit(
        self,
        events: Sequence[Event],
        *also: Callable[[Transaction], object],
        check: Callable[[Session], object] | None = None,
    ) -> None:
        """Append the events to the log, with what else belongs to the same transaction, then publish them.

        `check` gets the session within the transaction; if it raises, nothing is written. Raises LeaseLost or NotSaved; then
        nothing was written or published. A cancellation takes effect only after the write has completed.
        """
        if self.turn.id is not None and self.turn.id == self.isolated_turn and not self.is_alone:
            await self._isolate(self.turn.id, events)
        await run_to_completion(self._commit(events, also, check))

    @property
    def may_have_goal(self) -> bool:
        """Whether the session works towards a goal. A sub-agent may work towards one of a session above it."""
        return self.session.summary.goal == "active" or self.session.delegated_by is not None

    async def _isolate(self, turn_id: str, events: Sequence[Event]) -> None:
        """Wait until no other isolated replay is at work anywhere, if the events begin work that must not run beside one."""
        if begins_work(events):
            await wait_until_alone(self.services.database, self.lease, turn_id)
            self.at_work = self.is_alone = True

    async def recover(self, events: Sequence[Event], *, marks: bool, isolated: bool) -> None:
        """Commit the recovery of the turn. With `marks` the turn counts as at work until its first request is sent."""
        turn_id = self.turn.id
        assert turn_id is not None, "only an open turn is recovered"
        self.isolated_turn = turn_id if isolated else ""

        def mark(tx: Transaction) -> None:
            log.delete_draft(tx, self.id)
            if marks:
                activity.begin(tx, self.lease, turn_id, isolated=False)

        await self.commit(events, mark)
        self.at_work = marks

    async def end_preparation(self) -> None:
        """Record that the turn waits for a model from now on: a later death of this worker is not its fault."""
        if self.at_work and not _is_acting(self.turn):
            await self.services.database.write(activity.end, self.lease)
            self.at_work = self.is_alone = False

    async def _commit(
        self,
        events: Sequence[Event],
        also: Sequence[Callable[[Transaction], object]],
        check: Callable[[Session], object] | None,
    ) -> None:
        async with self._order:
            at, before = self.services.clock.now(), self.turn
            after = reduce(fold_turn, events, before)

            def work(tx: Transaction) -> tuple[Session, list[Input], list[Entry]]:
                session = log.append(tx, self.lease, events, at=at)
                if check is not None:
                    check(session)
                self._record_activity(tx, before, after)
                for more in also:
                    more(tx)
                missed = self._missed(tx, session.seq - len(events))
                return session, input_queue.list_waiting(tx, self.id, running=self.turn.id), missed

            session, queued, missed = await self.services.database.write(work)
            first = session.seq - len(events) + 1
            added = [Entry(first + offset, at, event) for offset, event in enumerate(events)]
            self._apply([*missed, *added])
            self.session = session
            if _is_acting(before) != _is_acting(after) or (self.at_work and after.only_delegates):
                self.at_work = _is_acting(after)
                self.is_alone = self.is_alone and self.at_work
            self.set_queue(queued)

    def _record_activity(self, tx: Transaction, before: Turn, after: Turn) -> None:
        """Record whether a tool of the turn runs in this process, if that changes."""
        if _is_acting(after) and not _is_acting(before) and after.id is not None:
            activity.begin(tx, self.lease, after.id, isolated=after.id == self.isolated_turn)
        elif (_is_acting(before) and not _is_acting(after)) or (self.at_work and after.only_delegates):
            activity.end(tx, self.lease)

    def _missed(self, tx: Transaction, upto: int) -> list[Entry]:
        """Entries that other workers have added since our last commit."""
        return log.read(tx, self.id, first=self.seen + 1, last=upto) if self.seen < upto else []

    def _added(self, tx: Transaction, session: Session, written: Sequence[Event], at: int) -> list[Entry]:
        """All entries since our last commit. The log is read only if there are others than those just written."""
        if session.seq - self.seen != len(written):
            return self._missed(tx, session.seq)
        return self._added_here(written, at)

    def _end_of_log(self, session: Session, written: Sequence[Event], at: int) -> list[Entry]:
        """The log from the end of the turn before to the events just written; empty if others have added to it meanwhile."""
        if session.seq - self.seen != len(written):
            return []
        start = next(
            (n for n in range(len(self.entries), 0, -1) if isinstance(self.entries[n - 1].event, TurnEnded)), 1
        )
        return [*self.entries[start - 1 :], *self._added_here(written, at)]

    def _added_here(self, written: Sequence[Event], at: int) -> list[Entry]:
        return [Entry(self.seen + offset, at, event) for offset, event in enumerate(written, 1)]

    def _apply(self, entries: Sequence[Entry]) -> None:
        for entry in entries:
            self.entries.append(entry)
            self.context.add(entry)
            self.turn = fold_turn(self.turn, entry.event)
            if isinstance(entry.event, ModelSaid | TurnEnded):
                self.said = self.kept = self.asked = ""
            self.publish(entry)

    def publish(self, item: StreamItem) -> None:
        self.services.bus.publish(self.id, item)

    def stream(self, kind: str, text: str) -> None:
        """Publish text that is not committed yet."""
        assert self.turn.id is not None, "only a turn has live text"
        if kind == "restarted":
            self.kept = ""
        at = len(self.said) - len(text) if kind == "text" else 0
        self.publish(LiveText(self.turn.id, kind, text, at=at, behind=self.seen))  # type: ignore[arg-type] # one of the kinds

    @property
    def seen(self) -> int:
        """The number of the last event in memory."""
        return self.entries[-1].seq if self.entries else 0

    @property
    def so_far(self) -> LiveText | None:
        """The streamed text of the reply so far, for a watcher that starts in the middle."""
        if self.turn.id is None or not self.said:
            return None
        return LiveText(self.turn.id, "text", self.said, behind=self.seen)

    async def save_draft(self, body: str) -> None:
        """Save the text of the reply so far, then publish what has become durable."""
        turn_id = self.turn.id
        assert turn_id is not None, "only a turn has a draft"
        draft = log.ReplyDraft(turn_id, body, self.services.clock.now(), self.notice, self.asked)
        await self.services.database.write(log.save_draft, self.lease, draft)
        # Not if the reply has started again, or is committed by now.
        if turn_id == self.turn.id and len(body) > len(self.kept) and self.said.startswith(body):
            more = body[len(self.kept) :]
            self.publish(LiveText(turn_id, "text", more, kept=True, at=len(self.kept), behind=self.seen))
            self.kept = body

    @contextmanager
    def on_change(self, callback: Callable[[], None]) -> Iterator[None]:
        """Call back when the store notifies of a change, except for the commit that releases the session."""
        loop = asyncio.get_running_loop()

        def call_unless_released() -> None:
            if not self.released:
                callback()

        # Later, because a notification may arrive just before our own commit returns.
        unsubscribe = self.services.database.subscribe(self.id, lambda: loop.call_soon(call_unless_released))
        try:
            yield
        finally:
            unsubscribe()

    async def until_stopped(self) -> None:
        """Read the input queue, now and whenever the store notifies of a change; returns when the turn is to stop."""
        with TopicListener(self.services.database, self.id) as listener:
            while not self.stop.is_set():
                await listener.wait(None)
                async with self._order:
                    turn_id = self.turn.id  # after a commit of our own, which also notifies
                if not self.released:
                    queued = await self._read_queue(turn_id)
                    if turn_id == self.turn.id:  # a queue read during one turn says nothing about the next
                        self.set_queue(queued)

    async def _read_queue(self, turn_id: str | None) -> list[Input]:
        if not await self.services.inputs.has_input(self.id):
            return []
        return await self.services.database.read(input_queue.list_waiting, self.id, running=turn_id)

    def set_queue(self, queued: list[Input]) -> None:
        """Note what is queued. Input that interrupts, or a request to stop this turn, sets `stop`."""
        self.queued = queued
        if any(item.mode == "interrupt" or (item.mode == "stop" and item.turn_id == self.turn.id) for item in queued):
            self.stop.set()

    async def join_steering(self) -> None:
        """Add queued input that steers the running turn to the turn, each exactly once."""
        if any(item.mode == "steer" for item in self.queued):
            await run_to_completion(self._join_steering())

    async def _join_steering(self) -> None:
        async with self._order:
            at, turn_id = self.services.clock.now(), self.turn.id
            assert turn_id is not None, "only a turn is steered"

            def work(tx: Transaction) -> tuple[Session, list[Entry]]:
                joined: list[Event] = []
                for item in input_queue.list_waiting(tx, self.id):
                    if item.mode == "steer" and item.said is not None:
                        input_queue.delete(tx, self.id, item.turn_id)
                        joined += item.completions
                        if item.said.parts:
                            joined.append(msgspec.structs.replace(item.said, turn_id=turn_id, input_id=item.turn_id))
                session = log.append(tx, self.lease, joined, at=at)
                return session, self._missed(tx, session.seq)

            self.session, added = await self.services.database.write(work)
            self.queued = [item for item in self.queued if item.mode != "steer"]
            self._apply(added)

    async def end_turn(
        self,
        events: Sequence[Event],
        *also: Callable[[Transaction], object],
        then: Input | None = None,
        check: Callable[[Transaction], object] | None = None,
    ) -> bool:
        """Commit the end of the turn and, in the same transaction, begin the next queued one or release the lease.

        Without queued input, the turn of `then` begins; otherwise the events before it come before the queued input. If
        `check` raises, nothing is written. True if another turn has begun. A cancellation takes effect only after the
        write has completed.
        """
        return await run_to_completion(self._end_turn(events, also, then, check))

    async def _end_turn(
        self,
        events: Sequence[Event],
        also: Sequence[Callable[[Transaction], object]],
        then: Input | None,
        check: Callable[[Transaction], object] | None,
    ) -> bool:
        async with self._order:
            at = self.services.clock.now()
            leaves = self.pause.is_set() or self.turn.id in self.last
            was_at_work = self.at_work or bool(self.turn.started)

            def work(tx: Transaction) -> tuple[Session, list[Entry], bool]:
                found = log.lock_at_turn_end(tx, self.lease)
                if check is not None:
                    check(tx)
                session = log.extend(tx, found.session, events, at=at)
                for more_work in also:
                    more_work(tx)
                if was_at_work:
                    activity.end(tx, self.lease)
                if events:
                    if session.summary.source == "api":
                        client_history.catch_up(tx, session, self._end_of_log(session, events, at))
                    has_addresses = found.has_reply_addresses
                    session = outbound.ended(
                        tx, self.lease, session, self.entries, events, at=at, has_addresses=has_addresses
                    )
                    if found.has_draft:
                        log.delete_draft(tx, self.id)
                    if found.has_questions:
                        approvals.withdraw(tx, self.id, at=at)
                following = input_queue.end_turn(tx, self.id, take=not leaves) if found.has_input else None
                if then is not None:
                    following = self._following(tx, following, then, leaves=leaves, at=at)
                written = list(events)
                if following is not None:
                    awaited = turn_lookup.find_awaited_calls(tx, session, self._end_of_log(session, events, at))
                    beginning = [*reopening(session), *begin(tx, session, following, self.lease.worker_id, awaited)]
                    session = log.append(tx, self.lease, beginning, at=at)
                    written += beginning
                else:
                    session = self._end_inherited(tx, session, at)
                    leases.release(tx, self.lease)
                return session, self._added(tx, session, written, at), following is not None

            self.session, added, more = await self.services.database.write(work)
            self.said, self.queued, self.released, self.at_work, self.is_alone = "", [], not more, False, False
            self.stop.clear()
            self._apply(added)
            return more

    def _following(self, tx: Transaction, queued: Input | None, then: Input, *, leaves: bool, at: int) -> Input | None:
        """The input that begins the next turn: queued input first, with the events that come before `then`."""
        if queued is not None:
            return msgspec.structs.replace(queued, before=(*then.before, *queued.before))
        if leaves:
            input_queue.put(tx, self.id, then, at=at)
            return None
        return then

    def _end_inherited(self, tx: Transaction, session: Session, at: int) -> Session:
        """End a session whose owner is gone, unless it has a new one, or a channel that can bring more input."""
        summary = session.summary
        if not self.inherited or session.owner_worker is not None or summary.channel is not None:
            return session
        if summary.ended_at is not None:
            return session
        ended = Ended(reason="recovered", detail="its worker is gone; another finished its turn")
        return log.append(tx, self.lease, [ended], at=at)

    async def begin_next(self) -> bool:
        """Begin the next queued turn, or release the lease; whether a turn has begun."""
        return await self.end_turn([])


def _is_acting(turn: Turn) -> bool:
    """Whether a call works in this process. One that only waits for a child session does not."""
    return bool(turn.started and turn.acting)
