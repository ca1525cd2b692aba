"""A session in hand: its lease, its log in memory, and the one way to add to it."""

import asyncio
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass, field

import msgspec

from holdfast.engine import replies
from holdfast.engine.beginning import begin
from holdfast.engine.bus import Bus, Live, News
from holdfast.engine.context import Context
from holdfast.engine.together import whole
from holdfast.model.asking import ToolSpec
from holdfast.model.entry import Entry
from holdfast.model.event import Ended, Event, ModelSaid, Reopened, Terms
from holdfast.model.ids import Ids
from holdfast.model.session import Session
from holdfast.model.times import Clock
from holdfast.model.turn import Turn, fold_turn, turn_of
from holdfast.store import approvals, histories, inputs, leases, log, sessions
from holdfast.store.database import Database, Transaction
from holdfast.store.inputs import Input
from holdfast.store.leases import Lease

MANY = 5_000
"""Events that are taken in on a thread, so that nobody else has to wait."""


@dataclass(frozen=True, slots=True)
class Ground:
    """What everything in the engine stands on."""

    database: Database
    clock: Clock
    ids: Ids
    bus: Bus
    worker_id: str


class Frame(msgspec.Struct, frozen=True):
    """What goes with every request beside the messages, how many tokens it is guessed to take, and what it was made from."""

    terms: Terms
    ours: tuple[ToolSpec, ...]
    system: str
    tools: tuple[ToolSpec, ...]
    tokens: int


@dataclass(slots=True)
class Hand:
    """One session while this worker holds it. Not shared between workers; its commits come one after another."""

    ground: Ground
    lease: Lease
    session: Session
    entries: list[Entry]
    context: Context
    turn: Turn
    waiting: list[Input] = field(default_factory=list)
    """Input that had arrived when something was last committed."""
    said: str = ""
    """What the reply in the making has said so far."""
    stop: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when somebody asks the turn to end."""
    released: bool = False
    """Whether the session has been given back."""
    pause: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when this worker is about to leave: the step in hand is finished, no other begun."""
    last: Container[str] = frozenset()
    """Turns behind which this worker begins no other, because it leaves."""
    inherited: bool = False
    """Whether this worker finishes what was left by one that would have ended the session: then it does so itself."""
    frame: Frame | None = None
    """What went with the last request."""
    kept: str = ""
    """How much of what was said stands in the draft."""
    _order: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def id(self) -> str:
        return self.lease.session_id

    async def commit(self, events: Sequence[Event], *also: Callable[[Transaction], object]) -> None:
        """Add the events to the log, with whatever else belongs into the same transaction, and then tell those who watch.

        Raises LeaseLost or NotSaved; nothing has happened then, and nobody was told anything. Cancelling it
        waits until it is known what has happened.
        """
        await whole(self._commit(events, also))

    async def _commit(self, events: Sequence[Event], also: Sequence[Callable[[Transaction], object]]) -> None:
        async with self._order:
            at = self.ground.clock.now()

            def work(tx: Transaction) -> tuple[Session, list[Input], list[Entry]]:
                session = log.append(tx, self.lease, events, at=at)
                for more in also:
                    more(tx)
                missed = self._missed(tx, session.seq - len(events))
                return session, inputs.waiting(tx, self.id), missed

            session, self.waiting, missed = await self.ground.database.write(work)
            first = session.seq - len(events) + 1
            added = [Entry(first + place, at, event) for place, event in enumerate(events)]
            self._take_in([*missed, *added])
            self.session = session
            self.mind_the_waiting()

    def _missed(self, tx: Transaction, upto: int) -> list[Entry]:
        """Facts that others added beside us since we last looked."""
        known = self.entries[-1].seq if self.entries else 0
        return log.read(tx, self.id, first=known + 1, last=upto) if known < upto else []

    def _take_in(self, entries: Sequence[Entry]) -> None:
        for entry in entries:
            self.entries.append(entry)
            self.context.add(entry)
            self.turn = fold_turn(self.turn, entry.event)
            if isinstance(entry.event, ModelSaid):
                self.said = self.kept = ""
            self.tell(entry)

    def tell(self, item: News) -> None:
        self.ground.bus.publish(self.id, item)

    def stream(self, kind: str, text: str) -> None:
        """Pass on words that are not committed yet."""
        assert self.turn.id is not None, "only a turn has live text"
        if kind == "restarted":
            self.kept = ""
        at = len(self.said) - len(text) if kind == "text" else 0
        self.tell(Live(self.turn.id, kind, text, at=at, behind=self.seen))  # type: ignore[arg-type] # one of the three kinds

    @property
    def seen(self) -> int:
        """The number of the last event that is known here."""
        return self.entries[-1].seq if self.entries else 0

    @property
    def so_far(self) -> Live | None:
        """What the reply in the making has said so far, for one who comes late."""
        if self.turn.id is None or not self.said:
            return None
        return Live(self.turn.id, "text", self.said, behind=self.seen)

    async def keep_draft(self, body: str) -> None:
        """Keep what the reply has said so far, and look for input on the way."""
        assert self.turn.id is not None, "only a turn has a draft"
        draft = log.Draft(self.turn.id, body, self.ground.clock.now())

        def work(tx: Transaction) -> list[Input]:
            log.keep_draft(tx, self.lease, draft)
            return inputs.waiting(tx, self.id)

        turn_id = self.turn.id
        self._note_waiting(turn_id, await self.ground.database.write(work))
        self._tell_kept(turn_id, body)

    def _tell_kept(self, turn_id: str, body: str) -> None:
        """Pass on what has become safe, unless the reply has begun anew or is committed by now."""
        if turn_id == self.turn.id and len(body) > len(self.kept) and self.said.startswith(body):
            more = body[len(self.kept) :]
            self.tell(Live(turn_id, "text", more, kept=True, at=len(self.kept), behind=self.seen))
            self.kept = body

    async def look_for_input(self) -> None:
        turn_id = self.turn.id
        self._note_waiting(turn_id, await self.ground.database.read(inputs.waiting, self.id))

    def _note_waiting(self, turn_id: str | None, waiting: list[Input]) -> None:
        """What was read while one turn ran says nothing about the next."""
        if turn_id == self.turn.id:
            self.waiting = waiting
            self.mind_the_waiting()

    async def join_steering(self) -> None:
        """Put words that are meant for the running turn into it, those that still wait and none twice."""
        if any(item.mode == "steer" for item in self.waiting):
            await whole(self._join_steering())

    async def _join_steering(self) -> None:
        async with self._order:
            at, turn_id = self.ground.clock.now(), self.turn.id
            assert turn_id is not None, "only a turn is steered"

            def work(tx: Transaction) -> tuple[Session, list[Entry]]:
                words: list[Event] = []
                for item in inputs.waiting(tx, self.id):
                    if item.mode == "steer" and item.said is not None:
                        inputs.drop(tx, self.id, item.turn_id)
                        words.append(msgspec.structs.replace(item.said, turn_id=turn_id, input_id=item.turn_id))
                session = log.append(tx, self.lease, words, at=at)
                return session, self._missed(tx, session.seq)

            self.session, added = await self.ground.database.write(work)
            self.waiting = [item for item in self.waiting if item.mode != "steer"]
            self._take_in(added)

    async def end_turn(self, events: Sequence[Event], *also: Callable[[Transaction], object]) -> bool:
        """Commit the end of the turn and, in the same transaction, begin the next one that waits or give the session back.

        True if another turn has begun. Cancelling it waits until it is known what has happened.
        """
        return await whole(self._end_turn(events, also))

    async def _end_turn(self, events: Sequence[Event], also: Sequence[Callable[[Transaction], object]]) -> bool:
        async with self._order:
            at = self.ground.clock.now()
            leaves = self.pause.is_set() or self.turn.id in self.last

            def work(tx: Transaction) -> tuple[Session, list[Entry], bool]:
                session = log.append(tx, self.lease, events, at=at)
                for more_work in also:
                    more_work(tx)
                if events:
                    if session.summary.source == "api":
                        histories.catch_up(tx, session)
                    session = replies.ended(tx, self.lease, session, self.entries, events, at=at)
                    log.drop_draft(tx, self.id)
                    approvals.withdraw(tx, self.id, at=at)
                following = None if leaves else inputs.take_next(tx, self.id)
                if following is not None:
                    beginning = [*reopening(session), *begin(tx, session, following, self.lease.worker_id)]
                    session = log.append(tx, self.lease, beginning, at=at)
                else:
                    session = self._end_inherited(tx, session, at)
                    leases.release(tx, self.lease)
                return session, self._missed(tx, session.seq), following is not None

            self.session, added, more = await self.ground.database.write(work)
            self.said, self.waiting, self.released = "", [], not more
            self.stop.clear()
            self._take_in(added)
            return more

    def _end_inherited(self, tx: Transaction, session: Session, at: int) -> Session:
        """End a session whose owner is gone, unless it has a new one, or a channel that brings more words."""
        summary = session.summary
        if not self.inherited or session.owner_worker is not None or summary.channel is not None:
            return session
        if summary.ended_at is not None:
            return session
        ended = Ended(reason="recovered", detail="its worker is gone; another finished its turn")
        return log.append(tx, self.lease, [ended], at=at)

    async def begin_next(self) -> bool:
        """Begin the turn of the input that waits, or give the session back; whether a turn has begun."""
        return await self.end_turn([])

    def mind_the_waiting(self) -> None:
        if any(item.mode in ("interrupt", "stop") for item in self.waiting):
            self.stop.set()


def reopening(session: Session) -> list[Event]:
    """Words take an ended session up again."""
    return [] if session.summary.ended_at is None else [Reopened(reason="somebody spoke to it")]


@dataclass(frozen=True, slots=True)
class Memory:
    """What a worker remembers of a session between turns."""

    entries: list[Entry]
    context: Context


def take_up(ground: Ground, lease: Lease, session: Session, memory: Memory, news: Sequence[Entry]) -> Hand:
    """The session in hand, from what is remembered of it and what has been added since."""
    for entry in news:
        memory.entries.append(entry)
        memory.context.add(entry)
    memory.context.weigh(0)  # here, because it may take a while
    return Hand(ground, lease, session, memory.entries, memory.context, turn_of(memory.entries))


async def load(ground: Ground, lease: Lease, memory: Memory) -> Hand:
    """Take up a session: its whole log, proved complete, of which only what is not remembered is read."""

    def work(tx: Transaction) -> tuple[Session, list[Entry], list[Input]]:
        session = sessions.get(tx, lease.session_id)
        known = memory.entries[-1].seq if memory.entries else 0
        news = log.read(tx, session.id, first=known + 1) if known else log.read_whole(tx, session)
        return session, news, inputs.waiting(tx, session.id)

    session, news, waiting = await ground.database.read(work)
    if len(news) > MANY:
        hand = await asyncio.to_thread(take_up, ground, lease, session, memory, news)
    else:
        hand = take_up(ground, lease, session, memory, news)
    hand.waiting = waiting
    hand.mind_the_waiting()
    return hand
