"""Runs many sessions at once in one worker, each with one turn at a time.

A session that has something to do is served by one task: it takes the lease (from the dead, if need
be), puts right what a crash left, plays the turns that wait, and gives the lease back in the very
transaction that ends the last of them. Nothing is decided by what this process remembers: the
queue, the open turn and the lease are read in the store each time.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Coroutine
from typing import Any

from holdfast.engine import holding, recover, replies
from holdfast.engine.admit import Admission
from holdfast.engine.bus import Failed, Live
from holdfast.engine.byhand import Deed, Do
from holdfast.engine.context import Context
from holdfast.engine.hand import Ground, Hand, Memory, load, take_up
from holdfast.engine.liveness import bury_dead_holder, bury_if_gone
from holdfast.engine.memory import Memories
from holdfast.engine.recover import Policy
from holdfast.engine.together import stop
from holdfast.engine.turn import Playing, play
from holdfast.model.errors import Busy, HoldfastError, InQuarantine, LeaseLost, NotFound, NotSaved, Unavailable
from holdfast.model.event import Event, Quarantined
from holdfast.model.identity import Identity
from holdfast.model.session import Session
from holdfast.store import inputs, leases, log, sessions
from holdfast.store.leases import Lease

logger = logging.getLogger(__name__)
Prepare = Callable[[Session, Event], Playing]
"""What a session's turns are played with, by the session and the event that opened it."""

OWNED = ("chat", "run", "library", "cron", "batch")
"""Sources whose sessions somebody has open: if the one who would have ended them is gone, whoever plays what it left does."""
RETRY_SECONDS = 2.0
"""How often a session held elsewhere is looked at, should nobody tell us that it is free."""


class Coordinator:
    def __init__(self, ground: Ground, ours: Identity, prepare: Prepare) -> None:
        self._ground = ground
        self.ours = ours
        self._prepare = prepare
        self._tasks: dict[str, asyncio.Task[None]] = {}
        """The newest task of each session; it waits for the one before it."""
        self._all: set[asyncio.Task[None]] = set()
        self._hands: dict[str, Hand] = {}
        self._memories = Memories()
        self._leaving = False
        self._handing_over = False
        """Whether another worker goes on at once with what this one leaves, so that those who watch can wait for it."""
        self._cut_off: Unavailable | None = None
        self._owed: dict[str, Lease] = {}
        """Sessions that could not be given back because the store was away."""
        self._last: set[str] = set()
        """Turns behind which this worker begins no other."""
        self._wanted: set[str] = set()
        """Turns of words that were said here and wait for a worker elsewhere: whoever said them is here and wants them answered."""

    @property
    def leaving(self) -> bool:
        return self._leaving

    @property
    def handing_over(self) -> bool:
        return self._handing_over

    def refuse_work(self, *, can_be_left: bool = False) -> None:
        """Raise Unavailable in a worker that is about to stop, or of which the store has heard nothing for too long.

        What `can_be_left` is taken in, and left at once, as long as another worker goes on with what this one leaves.
        """
        if self._leaving and not (can_be_left and self._handing_over):
            raise Unavailable("this worker is about to stop and takes no more work")
        if self._cut_off is not None:
            raise self._cut_off

    @property
    def _accepts(self) -> bool:
        return not self._leaving and self._cut_off is None

    def wake(
        self,
        session_id: str,
        lease: Lease | None = None,
        *,
        began: Admission | None = None,
        policy: Policy | None = None,
        patient: bool = True,
        wanted: str | None = None,
    ) -> None:
        """See to it that the session is served. `began` is the admission of a turn that has only just begun: it needs no recovery.

        If another worker holds the session, wait to see whether it dies, unless not `patient`. The turn that is `wanted`
        is gone on with, should that worker begin it and leave.
        """
        before = self._tasks.get(session_id)
        task = self._start(session_id, self._serve(session_id, lease, began, policy, before, patient=patient))
        if wanted is not None:
            self._wanted.add(wanted)
            task.add_done_callback(lambda _: self._wanted.discard(wanted))

    def _start(self, session_id: str, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        task = asyncio.create_task(work, name=f"serve {session_id}")
        self._tasks[session_id] = task
        self._all.add(task)
        task.add_done_callback(lambda done: self._forget(session_id, done))
        return task

    def _forget(self, session_id: str, task: "asyncio.Task[None]") -> None:
        self._all.discard(task)
        if self._tasks.get(session_id) is task:
            del self._tasks[session_id]

    def note(self, session_id: str) -> bool:
        """Have a turn that runs here look at its queue, into which something was just put; False if none runs here."""
        hand = self._hands.get(session_id)
        if hand is None:
            return False
        look = asyncio.create_task(hand.look_for_input(), name=f"look {session_id}")
        self._all.add(look)
        look.add_done_callback(self._all.discard)
        return True

    async def close_left(self, session_id: str) -> None:
        """Close a turn that a dead or departed worker left open, as new words would. Not if words wait: those come first."""
        await self.bury_dead_holder(session_id)
        if await self._ground.database.read(holding.is_left, session_id):
            before = self._tasks.get(session_id)
            closing = self._serve(session_id, None, None, "close", before, patient=False)
            await asyncio.wait({self._start(session_id, closing)})

    def begin_none_behind(self, turn_id: str) -> None:
        """This worker leaves once the turn has ended: words that wait then go on waiting, for whoever comes next."""
        self._last.add(turn_id)

    async def between_turns(self, session_id: str, do: Do) -> Deed:
        """Have something done in a session that we hold while no turn is open; what was committed.

        Words that come meanwhile wait, and get their turn afterwards. Raises Busy if somebody else holds the
        session, or a turn is open in it, and whatever the deed raises: then nothing was done. Cancelling it stops the deed.
        """
        self.refuse_work()
        done: asyncio.Future[Deed] = asyncio.get_running_loop().create_future()
        task = self._start(session_id, self._hold(session_id, do, done, self._tasks.get(session_id)))
        either: list[asyncio.Future[Any]] = [task, done]
        try:
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        finally:
            if not done.done():
                await stop(task)
        return done.result() if done.done() else _raised(task)

    async def _hold(
        self, session_id: str, do: Do, done: "asyncio.Future[Deed]", before: "asyncio.Task[None] | None"
    ) -> None:
        lease = await self._take_idle(session_id)
        hand: Hand | None = None
        try:
            if before is not None:
                await asyncio.wait({before})  # it has given the session back, and is about to end
            hand = await self._take_up(lease, None)
            self._hands[hand.id] = hand
            hand.last = self._last
            deed = await do(hand, self._prepare(hand.session, hand.entries[0].event))
            more = await hand.end_turn(deed.events, *deed.also)
            done.set_result(deed)
            self._memories.keep(hand)
            if more and hand.turn.id is not None:
                began = Admission(hand.session, hand.turn.id, lease, began=True, entries=(hand.entries[-1],))
                self.wake(session_id, lease, began=began)
                hand.released = True
        finally:
            self._hands.pop(session_id, None)
            await self._let_go(lease, hand)
            if not done.done() and not self._leaving:
                self.wake(session_id, patient=False)

    async def _take_idle(self, session_id: str) -> Lease:
        """The lease of a session in which nothing is open."""
        try:
            return await self._ground.database.write(holding.take_idle, session_id, self._ground.worker_id)
        except Busy:
            if await self.bury_dead_holder(session_id) is None:
                raise
            return await self._ground.database.write(holding.take_idle, session_id, self._ground.worker_id)

    def serves(self, session_id: str) -> bool:
        """Whether news of the session come over this worker's bus."""
        return session_id in self._hands

    def so_far(self, session_id: str) -> list[Live]:
        """What the reply in the making has said so far, if one is made here."""
        hand = self._hands.get(session_id)
        return [] if hand is None or hand.so_far is None else [hand.so_far]

    @property
    def in_hand(self) -> int:
        """How many sessions are played here."""
        return len(self._hands)

    async def drain(self, seconds: float, *, handing_over: bool = False) -> None:
        """Begin nothing more; give the steps in hand some time to finish, then leave their turns to the next worker.

        With `handing_over` another one is there, and those who watch here are not sent away: they go on watching.
        """
        self._leaving = True
        self._handing_over = handing_over
        for hand in self._hands.values():
            hand.pause.set()
        tasks = list(self._all)
        if tasks:
            await asyncio.wait(tasks, timeout=seconds)
        await stop(*tasks)

    async def settled(self) -> None:
        """Wait until nothing is in hand."""
        while self._all:
            await asyncio.wait(self._all)

    def abandon(self, error: HoldfastError) -> None:
        """Stop at once, and tell those who watch: what this worker had in hand is no longer its own."""
        self._leaving = True
        self._handing_over = False
        self._stop_all(error)

    def let_all_go(self, error: Unavailable) -> None:
        """Stop at once, tell those who watch, and begin nothing until `go_on`: others may soon take this worker for dead."""
        self._cut_off = error
        self._stop_all(error)

    def go_on(self) -> None:
        """The store knows that this worker lives."""
        self._cut_off = None

    def _stop_all(self, error: HoldfastError) -> None:
        for task in self._all:
            task.cancel()
        for session_id in self._tasks:
            self._ground.bus.publish(session_id, Failed(error))

    async def give_back_owed(self) -> None:
        """Try once more to give back what could not be given back, and go on with what needs no person for it."""
        tasks = [
            self._start(session_id, self._give_back_owed(lease, self._tasks.get(session_id)))
            for session_id, lease in self._owed.items()
        ]
        if tasks:
            await asyncio.wait(tasks)

    async def _give_back_owed(self, lease: Lease, before: "asyncio.Task[None] | None") -> None:
        session_id = lease.session_id
        if before is not None:
            await asyncio.wait({before})
        try:
            await self._ground.database.write(holding.give_back, lease)
            session: Session | None = await self._ground.database.read(sessions.get, session_id)
        except (NotSaved, Unavailable) as e:
            logger.warning("session %s still cannot be given back: %s", session_id, e)
            return
        except NotFound:  # it was pruned meanwhile
            session = None
        if self._owed.get(session_id) == lease:
            del self._owed[session_id]
        if session is not None and recover.POLICY[session.summary.source] == "continue":
            self.wake(session_id, patient=False)

    async def _serve(
        self,
        session_id: str,
        lease: Lease | None,
        began: Admission | None,
        policy: Policy | None,
        before: "asyncio.Task[None] | None",
        *,
        patient: bool,
    ) -> None:
        """The boundary of a session's work: whatever goes wrong in there ends here, told to those who watch."""
        try:
            if before is not None:
                await asyncio.wait({before})
            lease = lease or await self._take(session_id, patient=patient)
            if lease is not None:
                await self._play(lease, began, policy)
        except HoldfastError as e:
            logger.warning("session %s: %s", session_id, e)
            self._ground.bus.publish(session_id, Failed(e))
        except Exception as e:
            logger.exception("session %s: the turn broke", session_id)
            self._ground.bus.publish(session_id, Failed(e))
        finally:
            if self._leaving and not self._handing_over:
                left = Unavailable(
                    f"this worker is leaving; session {session_id} is kept, for the next one to go on with"
                )
                self._ground.bus.publish(session_id, Failed(left))
            # Whoever watches did not hear of what others wrote while this task waited.
            self._ground.bus.ring(session_id)

    async def _take(self, session_id: str, *, patient: bool) -> Lease | None:
        """The lease, as soon as it can be had; None if by then there is nothing left to do, or another sees to it."""
        news = self._ground.database.listen(session_id)
        try:
            while self._accepts and await self._ground.database.read(holding.has_work, session_id):
                try:
                    return await self._ground.database.write(leases.take, session_id, self._ground.worker_id)
                except Busy:
                    if await self.bury_dead_holder(session_id) is not None:
                        continue
                    if not patient:
                        return None
                    await _next(news, RETRY_SECONDS)
            return None
        finally:
            await news.aclose()

    async def bury_dead_holder(self, session_id: str) -> str | None:
        """Take the session from its holder if that is certainly gone; the evidence, if so."""
        return await bury_dead_holder(self._ground.database, session_id, self.ours, at=self._ground.clock.now())

    async def bury_if_gone(self, worker_id: str) -> str | None:
        """Declare a worker dead if its process is certainly gone; the evidence, if so."""
        if worker_id == self._ground.worker_id:
            return None
        return await bury_if_gone(self._ground.database, worker_id, self.ours, at=self._ground.clock.now())

    async def _play(self, lease: Lease, began: Admission | None, policy: Policy | None) -> None:
        hand: Hand | None = None
        broken = False
        try:
            hand = await self._take_up(lease, began)
            self._hands[hand.id] = hand
            hand.last = self._last
            if self._leaving:
                hand.pause.set()
            await self._play_turns(hand, began, policy)
        except (NotSaved, LeaseLost, Unavailable, InQuarantine):
            raise
        except Exception as e:
            # A bug: it ends this turn for its caller, and whoever waits behind it is served.
            logger.exception("session %s: the turn broke", lease.session_id)
            self._ground.bus.publish(lease.session_id, Failed(e, hand.turn.id if hand else None))
            broken = True
        finally:
            self._hands.pop(lease.session_id, None)
            await self._let_go(lease, hand)
        if broken and any(item.said for item in await self._ground.database.read(inputs.waiting, lease.session_id)):
            self.wake(lease.session_id)

    async def _take_up(self, lease: Lease, began: Admission | None) -> Hand:
        """The session with its log, of which only what this worker does not remember is read."""
        memory = self._memories.take(lease.session_id) or Memory([], Context())
        if began is not None and began.entries[0].seq == len(memory.entries) + 1:
            return take_up(self._ground, lease, began.session, memory, began.entries)
        return await load(self._ground, lease, memory)

    async def _play_turns(self, hand: Hand, began: Admission | None, policy: Policy | None) -> None:
        playing = self._prepare(hand.session, hand.entries[0].event)
        recovered = hand.turn.id is not None and (began is None or hand.turn.id != began.turn_id)
        was_left = recovered or hand.session.summary.ended_at is not None
        hand.inherited = was_left and hand.session.summary.source in OWNED
        if recovered:
            await self._recover(hand, playing, policy)
        if hand.turn.id is None:
            await self._begin_waiting(hand)
        if await play(hand, playing):
            self._memories.keep(hand)

    async def _recover(self, hand: Hand, playing: Playing, policy: Policy | None) -> None:
        """Count the attempt and put right what the dead worker left, before anything acts."""
        draft = await self._ground.database.read(log.draft, hand.id)
        evidence = await self._ground.database.read(holding.evidence, hand)
        turn_id, at = hand.turn.id or "", self._ground.clock.now()
        if await self._ground.database.read(replies.is_expected, hand.id, turn_id):
            policy = "continue"
        ours: Policy | None = "continue" if hand.turn.id in self._wanted else None
        events = recover.plan(
            hand.entries,
            hand.turn,
            draft,
            policy=policy or ours or recover.POLICY[hand.session.summary.source],
            evidence=evidence,
            worker_id=self._ground.worker_id,
            repeatable=playing.repeatable,
        )
        if isinstance(events[0], Quarantined):
            reason = events[0].reason
            await hand.commit(events, lambda tx: replies.gave_up(tx, hand.id, turn_id, reason, at=at))
            raise InQuarantine(f"session {hand.id} was put into quarantine: {events[0].reason}")
        await hand.commit(events, lambda tx: log.drop_draft(tx, hand.id))

    async def _begin_waiting(self, hand: Hand) -> None:
        """Start the turn of the input that waits longest, or give the session back."""
        if not await hand.begin_next():
            self._memories.keep(hand)

    async def _let_go(self, lease: Lease, hand: Hand | None) -> None:
        """Leave the session to others, with the words of a reply in the making kept. If the store is away, it is done later."""
        if hand is not None and hand.released:
            return
        try:
            if hand is not None and hand.said and hand.turn.id is not None:
                await hand.keep_draft(hand.said)
            await self._ground.database.write(holding.give_back, lease)
        except LeaseLost as e:
            logger.warning("session %s had been taken by another: %s", lease.session_id, e)
        except (NotSaved, Unavailable) as e:
            logger.warning("session %s cannot be given back for the moment: %s", lease.session_id, e)
            self._owed[lease.session_id] = lease


def _raised(task: "asyncio.Task[None]") -> Deed:
    """What kept a task from its deed."""
    if task.cancelled():  # by nobody who waits for it: then that one would not be here
        raise Unavailable("this worker is leaving; what was finished is kept, and can be gone on with")
    task.result()
    raise AssertionError("a task that does not raise has done its deed")


async def _next(news: AsyncGenerator[None, None], seconds: float) -> None:
    """Wait for the next wake-up, but not for ever."""
    try:
        async with asyncio.timeout(seconds):
            await anext(news)
    except (TimeoutError, StopAsyncIteration):
        pass
