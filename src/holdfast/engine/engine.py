"""What every face calls: open, say, watch, interrupt, approve, read. None of them writes SQL or builds context."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import aclosing
from typing import Literal

import msgspec

from holdfast.engine import admit, byhand, queue, rewind
from holdfast.engine.admit import Admission, Words
from holdfast.engine.arrive import Arrival, Arrived, arrive
from holdfast.engine.bus import Failed, Live, News, Subscription
from holdfast.engine.coordinator import Coordinator
from holdfast.engine.departure import Departure
from holdfast.engine.hand import Ground
from holdfast.engine.janitor import Chore
from holdfast.engine.opening import Opened, Opening, create
from holdfast.engine.owning import Owning
from holdfast.engine.processes import Processes, Running
from holdfast.engine.reset import NEVER, Leaving, Resets
from holdfast.engine.rewind import Rewind
from holdfast.engine.titles import Titles
from holdfast.engine.together import whole
from holdfast.engine.watch import Watch
from holdfast.engine.why import Known
from holdfast.model.entry import Entry
from holdfast.model.errors import Busy, Conflict, Invalid, Unavailable
from holdfast.model.event import Compacted, CompactionFailed, CompactionUndone, ModelChanged, Source
from holdfast.model.ids import SESSION, TURN
from holdfast.model.message import Content, Text
from holdfast.model.session import Session
from holdfast.store import aliases, approvals, inputs, log, owners, processes, sessions, turns
from holdfast.store.approvals import Approval
from holdfast.store.database import Transaction
from holdfast.store.inputs import Input, Mode

DRAIN_SECONDS = 10.0


class Received:
    """A request that was taken in, and its turn as it is played. It must be closed; that does not stop the turn."""

    def __init__(self, engine: "Engine", arrived: Arrived, subscription: Subscription, first: int = 1) -> None:
        self.arrived = arrived
        self._first = first
        self._engine = engine
        self._subscription = subscription

    def follow(self) -> AsyncGenerator[Entry | Live, None]:
        """Committed events and live text, to the end of the turn. Raises what kept it from being played or recorded."""
        return self._engine.follow(self.arrived.admission, self._subscription, self._first)

    def close(self) -> None:
        self._engine.ground.bus.unsubscribe(self.arrived.admission.session.id, self._subscription)


class Engine:
    """One per worker. It must be closed, and may then leave turns open for the next worker to take up."""

    def __init__(self, ground: Ground, coordinator: Coordinator, default_model: str) -> None:
        self.ground = ground
        self._coordinator = coordinator
        self._default_model = default_model
        self._watch = Watch(ground, coordinator.serves, coordinator.so_far)
        self.stays = True
        """Whether this worker goes on with what others have said once it has played its own turns."""
        self.titles: Titles | None = None
        """What gives titles to sessions without one, where that is wanted."""
        self.owned = Owning(ground, coordinator.bury_if_gone)
        """The sessions that this worker has open."""
        self.departure = Departure(ground, coordinator.ours)
        """How this worker leaves."""
        self.processes: Processes | None = None
        """The background processes of the store, where there is somebody who looks after them."""
        self.resets = Resets(ground, NEVER, None)
        """What puts new sessions in the place of others: when they are due for it, where that is wanted, and by hand."""
        self.known = Known(clock=ground.clock)
        """What explanations of sessions rest on."""
        self.chores: Sequence[Chore] = ()
        """What a janitor of this worker sees to beside the sessions of the dead."""
        self.death: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Fails when this worker was declared dead: it holds nothing any more and must stop."""

    async def open(self, opening: Opening) -> Opened:
        """Get or create a session. Creating one that exists returns it. Raises NotFound or Ambiguous for a `ref`."""
        database, at = self.ground.database, self.ground.clock.now()
        if opening.ref is not None:
            found = await database.read(sessions.resolve, opening.ref)
            opened = Opened(found.session, new=False, others=found.others)
        else:
            owner = self.ground.worker_id if opening.own else None
            renewed = await self.freshen_channel(opening.channel)
            session, new = await database.write(
                create, self.ground.ids.make(SESSION), opening.fact(self._default_model), owner, at=at
            )
            opened = Opened(session, new=new or renewed)
        if opening.own:
            await self.owned.own(opened.session)
        if opening.model is not None and opened.session.summary.model != opening.model:
            changed = ModelChanged(model=opening.model)
            await self._coordinator.bury_dead_holder(opened.session.id)
            session = await database.write(log.append_unheld, opened.session.id, [changed], at=at)
            return msgspec.structs.replace(opened, session=session)
        return opened

    async def freshen_channel(self, channel: str | None) -> bool:
        """Have the channel's session reset if it is due for that and nothing holds it back; whether that was done."""
        if channel is None or not self.resets.ever(channel):
            return False
        current = await self.ground.database.read(aliases.current, channel)
        return current is not None and (await self.freshen(current)).id != current

    async def freshen(self, session_id: str) -> Session:
        """The session to go on with: this one, or a new one that takes its place because a reset was due.

        The new one's log begins with a `renewed` event, whose notice says what happened and how to undo it.
        """
        session = await self.ground.database.read(sessions.get, session_id)
        return self.owned.moved(session_id, await self.resets.freshen(session))

    async def begin_anew(self, session_id: str, leaving: Leaving = "keep") -> Session:
        """A new session in the place of this one; what runs in the background is stopped, kept or handed over. Raises Busy."""
        session = await self.ground.database.read(sessions.get, session_id)
        return self.owned.moved(session_id, await self.resets.begin_anew(session, leaving))

    async def running(self, session_id: str) -> list[Running]:
        """The background processes of a session that live, as they were last seen."""
        if self.processes is None:
            return []
        found = await self.ground.database.read(processes.of_session, session_id)
        return [(one, self.processes.judge(one)) for one in found if one.ended_at is None]

    async def undo_reset(self, session_id: str) -> Session:
        """The session before, in the place of one that began with a reset, within a day. Raises Invalid, NotFound or Busy."""
        return self.owned.moved(session_id, await self.resets.undo(session_id))

    async def admit(
        self,
        session_id: str,
        said: str | tuple[Content, ...],
        *,
        mode: Mode | None = "queue",
        caller: str = "",
        key: str = "",
        instead: Rewind | None = None,
    ) -> Admission:
        """Make the words durable and see to it that their turn is played; returns once they are safe.

        They may take the place of what is taken back (see `look_back`), in one step. Raises Conflict in a worker that
        was declared dead, Unavailable in one that is about to stop, unless another goes on with what it leaves.
        """
        self._refuse_when_leaving(can_be_left=True)
        parts = (Text(said),) if isinstance(said, str) else said
        if not parts:
            raise Invalid("there is nothing to say")
        turn_id = self.ground.ids.make(TURN)
        words = Words(turn_id=turn_id, parts=parts, mode=mode, caller=caller, key=key, instead=instead)
        return await whole(self._admit(session_id, words))

    async def _admit(self, session_id: str, words: Words) -> Admission:
        at, worker_id, owns = self.ground.clock.now(), self.ground.worker_id, session_id in self.owned
        admission = await self.ground.database.write(_admit, session_id, words, owns=owns, worker_id=worker_id, at=at)
        self._set_going(admission)
        return admission

    async def admit_by(self, work: Callable[[Transaction], Admission | None]) -> Admission | None:
        """Have a function of a transaction admit words beside what else it writes, and see to it that they are played.

        It names this worker as the one that takes the lease. Raises what the function raises, and Conflict in a worker
        that was declared dead, Unavailable in one that is about to stop: nobody is at the door who could not wait.
        """
        self._refuse_when_leaving()
        return await whole(self._admit_by(work))

    async def _admit_by(self, work: Callable[[Transaction], Admission | None]) -> Admission | None:
        admission = await self.ground.database.write(work)
        if admission is not None:
            self._set_going(admission)
        return admission

    def _set_going(self, admission: Admission) -> None:
        """See to it that what was admitted is played."""
        session_id = admission.session.id
        if not self.stays:
            self._coordinator.begin_none_behind(admission.turn_id)
        if admission.began:
            for entry in admission.entries:
                self.ground.bus.publish(session_id, entry)
            self._coordinator.wake(session_id, admission.lease, began=admission)
        elif admission.repeated:
            # Whoever repeats a request wants it done, also if the one who was at it has died.
            self._coordinator.wake(session_id, policy="continue")
        elif not self._coordinator.note(session_id):
            self._coordinator.wake(session_id, wanted=admission.turn_id)

    def _refuse_when_leaving(self, *, can_be_left: bool = False) -> None:
        if self.death.done():
            self.death.result()
        self._coordinator.refuse_work(can_be_left=can_be_left)

    @property
    def is_leaving(self) -> bool:
        return self._coordinator.leaving or self.death.done()

    async def receive(self, arrival: Arrival, *, kept: bool = False) -> Received:
        """Take a client's request in and see to it that its turn is played; returns once it is safe.

        As `admit`, for one who may not know which session it speaks to. `kept` is for a face that shows words only
        once they are safe. Close what is returned.
        """
        self._refuse_when_leaving(can_be_left=True)
        return await whole(self._receive(arrival, kept=kept))

    async def join(self, session: Session, place: turns.Place) -> Received:
        """Follow a turn that was admitted before, and see to it that it is played. Words come once they are safe."""
        admission = Admission(session, place.turn_id, repeated=True)
        subscription = self.ground.bus.subscribe(session.id, kept=True)
        received = Received(
            self, Arrived(admission, place.terms.model), subscription, first=place.first or session.seq + 1
        )
        if place.is_open and not self.is_leaving:
            self._set_going(admission)
        return received

    async def withdraw(self, session_id: str, turn_id: str) -> bool:
        """Take back words that wait, or ask their turn to end if it runs; False if neither. What was said stays in the log."""
        if await self.ground.database.write(queue.withdraw, session_id, turn_id, at=self.ground.clock.now()):
            self.ground.bus.ring(session_id)
            return True
        return await self.interrupt(session_id, turn_id)

    async def _receive(self, arrival: Arrival, *, kept: bool) -> Received:
        await self.freshen_channel(arrival.channel)
        at, worker_id = self.ground.clock.now(), self.ground.worker_id
        try:
            arrived = await self.ground.database.write(arrive, arrival, worker_id=worker_id, at=at)
        except Busy as e:
            # Whoever would rather not wait need not wait for the dead.
            if e.session_id is None or await self._coordinator.bury_dead_holder(e.session_id) is None:
                raise
            arrived = await self.ground.database.write(arrive, arrival, worker_id=worker_id, at=at)
        session_id = arrived.admission.session.id
        received = Received(self, arrived, self.ground.bus.subscribe(session_id, kept=kept))
        self._set_going(arrived.admission)
        return received

    def follow(
        self, admission: Admission, subscription: Subscription, first: int = 1
    ) -> AsyncGenerator[Entry | Live, None]:
        """The turn of an admission to its end, for a watcher who subscribed before it was set going. A repeat begins at `first`."""
        return self._watch.turn(admission, subscription, first)

    async def say(
        self,
        session_id: str,
        said: str | tuple[Content, ...],
        *,
        mode: Mode | None = "queue",
        caller: str = "",
        key: str = "",
        instead: Rewind | None = None,
    ) -> AsyncIterator[Entry | Live]:
        """Say something and follow its turn to the end: committed events, and live text in between.

        Whoever stops reading does not stop the turn. Raises what kept the turn from being played or
        recorded; a turn that ended badly is a `turn_ended` event that says so.
        """
        subscription = self.ground.bus.subscribe(session_id)
        try:
            admission = await self.admit(session_id, said, mode=mode, caller=caller, key=key, instead=instead)
            async with aclosing(self.follow(admission, subscription)) as news:
                async for item in news:
                    yield item
        finally:
            self.ground.bus.unsubscribe(session_id, subscription)

    async def watch(self, session_id: str, *, after: int = 0) -> AsyncIterator[Entry | Live]:
        """Every event behind `after`, those to come included, and live text; for ever."""
        async with aclosing(self._watch.all(session_id, after=after)) as news:
            async for item in news:
                if not isinstance(item, Failed):
                    yield item

    def news(self, session_id: str, *, after: int = 0) -> AsyncGenerator[News, None]:
        """As `watch`, for a face that shows words once they are safe, and tells of turns that broke."""
        return self._watch.all(session_id, after=after, kept=True)

    def events(self, session_id: str, *, after: int = 0) -> AsyncGenerator[News, None]:
        """As `watch`, for one who may come in the middle of a reply, and may come again: see `Watch.all`."""
        return self._watch.all(session_id, after=after, so_far=True)

    @property
    def in_hand(self) -> int:
        """How many sessions this worker plays at the moment."""
        return self._coordinator.in_hand

    async def change(self, session_id: str, work: Callable[[Transaction], Session]) -> Session:
        """Have something done to a whole session. A holder that is certainly gone stands in nobody's way.

        Raises what the function raises, such as Busy while a living worker holds the session.
        """
        try:
            return await self.ground.database.write(work)
        except Busy:
            if not await self.free_from_the_dead(session_id):
                raise
            return await self.ground.database.write(work)

    async def free_from_the_dead(self, session_id: str) -> bool:
        """Take the session from its holder if that is certainly gone; whether it was."""
        return await self._coordinator.bury_dead_holder(session_id) is not None

    async def resume(self, session_id: str) -> None:
        """Go on with a turn that was left open, though nobody said anything new."""
        self._coordinator.wake(session_id, policy="continue")

    async def interrupt(self, session_id: str, turn_id: str | None = None, *, leaving: bool = False) -> bool:
        """Ask the running turn, or just this one, to end; what was said stays. False if it is not open. Works across processes.

        For one who is `leaving`, words that wait behind it go on waiting.
        """
        request, at = Input(self.ground.ids.make(TURN), "stop", None), self.ground.clock.now()
        open_turn = (await self.ground.database.read(sessions.get, session_id)).summary.open_turn
        if leaving and open_turn is not None:
            self._coordinator.begin_none_behind(open_turn)
        if not await self.ground.database.write(queue.ask_to_stop, session_id, request, turn_id, at=at):
            return False
        if not self._coordinator.note(session_id):
            self._coordinator.wake(session_id)
        return True

    async def approve(
        self, session_id: str, turn_id: str, call_id: str, *, allowed: bool, by: str, reason: str = ""
    ) -> None:
        """Answer a question, once; the model is told the reason. Raises NotFound, or Conflict if somebody answered before."""
        answer = {"allowed": allowed, "by": by, "reason": reason, "at": self.ground.clock.now()}
        await self.ground.database.write(approvals.answer, session_id, turn_id, call_id, **answer)  # type: ignore[arg-type]

    async def questions(self, session_id: str) -> list[Approval]:
        """What waits for a person's word."""
        return await self.ground.database.read(approvals.unanswered, session_id)

    async def read(self, session_id: str) -> tuple[Session, list[Entry]]:
        """The session and its whole log, proved complete by count and hash."""

        def work(tx: Transaction) -> tuple[Session, list[Entry]]:
            session = sessions.get(tx, session_id)
            return session, log.read_whole(tx, session)

        return await self.ground.database.read(work)

    async def waiting(self, session_id: str) -> list[Input]:
        """Words that wait for their turn, the oldest first."""
        found = await self.ground.database.read(inputs.waiting, session_id)
        return [item for item in found if item.said is not None]

    async def look_back(self, session_id: str, *, count: int = 1, why: Literal["undo", "retry"] = "undo") -> Rewind:
        """What it takes to take the newest turns back. Raises Busy while one runs, Invalid if there is none.

        One that was left open is closed first, with what was said in it kept, as new words would close it.
        """
        await self._coordinator.close_left(session_id)
        return await self.ground.database.read(rewind.look_back, session_id, count=count, why=why)

    async def rewind(self, session_id: str, *, count: int = 1) -> Rewind:
        """Take the newest turns back; they stay in the log. Raises as `look_back`, and Conflict if somebody was faster."""
        back = await self.look_back(session_id, count=count)
        await self.ground.database.write(rewind.rewind, back, at=self.ground.clock.now())
        return back

    async def compact(self, session_id: str, about: str = "") -> Compacted | CompactionFailed:
        """Make the context smaller now, with what matters most in the person's words; the event that tells what came of it.

        Raises Busy while a turn is open or another worker holds the session. Cancelling it stops the work; what
        was finished of the summary is kept for the next time.
        """
        [event] = (await self._coordinator.between_turns(session_id, byhand.compacting(about))).events
        assert isinstance(event, Compacted | CompactionFailed), "that is what it commits"
        return event

    async def undo_compaction(self, session_id: str) -> CompactionUndone:
        """Show the model again what was shown before the newest compaction. Raises Invalid if there is none, and Busy as `compact`."""
        [event] = (await self._coordinator.between_turns(session_id, byhand.undoing)).events
        assert isinstance(event, CompactionUndone), "that is what it commits"
        return event

    async def fork(self, session_id: str, *, at_seq: int | None = None, source: Source | None = None) -> Session:
        """A new session with the log of this one, or the part of it up to an event."""
        new_id, at = self.ground.ids.make(SESSION), self.ground.clock.now()
        return await self.ground.database.write(sessions.fork, session_id, new_id, at=at, at_seq=at_seq, source=source)

    async def bookmark(self, name: str, session_id: str) -> None:
        """Let the name lead to this session, from now on and until it is given to another."""
        await self.ground.database.write(aliases.point, name, session_id, at=self.ground.clock.now())

    async def bookmarked(self, name: str) -> str | None:
        """The session that a name leads to; None if there is none, or it lies in the trash."""
        return await self.ground.database.read(_bookmarked, name)

    def take_up(self, session_id: str) -> None:
        """See to a session that has something to do, unless somebody else does already."""
        self._coordinator.wake(session_id, patient=False)

    async def settled(self) -> None:
        """Wait until nothing is in hand."""
        await self._coordinator.settled()

    def declare_dead(self, error: Conflict) -> None:
        """Stop everything: others have taken over what this worker had."""
        if not self.death.done():
            self.death.set_exception(error)
        self._coordinator.abandon(error)

    def let_all_go(self, error: Unavailable) -> None:
        """Stop what is in hand and take no work for the moment: the store has not heard of this worker for too long."""
        self._coordinator.let_all_go(error)

    def go_on(self) -> None:
        """Take work again."""
        self._coordinator.go_on()

    async def give_back_owed(self) -> None:
        """Let go of sessions that could not be given back while the store was away."""
        await self._coordinator.give_back_owed()

    async def drain(self, seconds: float = DRAIN_SECONDS, *, handing_over: bool = False) -> None:
        """Take no more work, and finish or leave what is in hand within the limit.

        With `handing_over` those who watch turns here go on watching while another worker plays them.
        """
        await self._coordinator.drain(seconds, handing_over=handing_over)

    async def close(self, reason: str = "it left") -> None:
        """Leave. Whatever is still open is as a crash would have left it, and is taken up by whoever comes next."""
        await self._coordinator.drain(0, handing_over=self._coordinator.handing_over)
        if self.titles is not None:
            await self.titles.close()
        if self.death.done():
            self.death.exception()
            return
        await self.owned.leave_all()
        await self.departure.part(reason)


def _bookmarked(tx: Transaction, name: str) -> str | None:
    session_id = aliases.current(tx, name)
    if session_id is None or sessions.get(tx, session_id).summary.trashed_at is not None:
        return None
    return session_id


def _admit(tx: Transaction, session_id: str, words: Words, *, owns: bool, worker_id: str, at: int) -> Admission:
    """Admit the words; a session that this worker has open is its own from now on, unless another living one's."""
    admission = admit.admit(tx, session_id, words, worker_id=worker_id, at=at)
    if owns and admission.session.owner_worker != worker_id:
        owners.attach(tx, session_id, worker_id)
    return admission
