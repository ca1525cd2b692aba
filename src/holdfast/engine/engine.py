"""What every face calls: open, say, watch, interrupt, approve, read. None of them writes SQL or builds context."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from pathlib import Path

import msgspec

from holdfast.engine import admit
from holdfast.engine.admit import Admission, Words
from holdfast.engine.bus import Failed, Live, News, Subscription
from holdfast.engine.coordinator import CLOSED, Coordinator
from holdfast.engine.hand import Ground
from holdfast.engine.together import stop, whole
from holdfast.model.errors import Conflict, Invalid, Unavailable
from holdfast.model.event import EndReason, Entry, ModelChanged, SessionOpened, TurnEnded, UserSaid
from holdfast.model.ids import SESSION, TURN
from holdfast.model.message import Content, Text
from holdfast.model.session import Session
from holdfast.store import approvals, inputs, log, owners, sessions, workers
from holdfast.store.approvals import Approval
from holdfast.store.database import Transaction
from holdfast.store.inputs import Input, Mode

DRAIN_SECONDS = 10.0


class Opening(msgspec.Struct, frozen=True, kw_only=True):
    """Which session to open: an existing one (`ref`), the current one of a channel (`channel`), or a new one."""

    ref: str | None = None
    channel: str | None = None
    source: str = "library"
    title: str | None = None
    model: str | None = None
    system: str | None = None
    workdir: Path | None = None
    own: bool = False
    """Whether this worker keeps the session open until it leaves it: when the worker dies, the session is ended."""


class Opened(msgspec.Struct, frozen=True):
    session: Session
    new: bool
    others: int = 0
    """How many other sessions the reference, if it was a title, would have meant as well."""


class Engine:
    """One per worker. It must be closed, and may then leave turns open for the next worker to take up."""

    def __init__(self, ground: Ground, coordinator: Coordinator, default_model: str) -> None:
        self.ground = ground
        self._coordinator = coordinator
        self._default_model = default_model
        self._opened: set[str] = set()
        """Sessions that this worker has open, though another may be their owner."""
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
            session, new = await database.write(
                _create, self.ground.ids.make(SESSION), self._fact(opening), owner, at=at
            )
            opened = Opened(session, new=new)
        if opening.own:
            await self._own(opened.session)
        if opening.model is not None and opened.session.summary.model != opening.model:
            changed = ModelChanged(model=opening.model)
            await self._coordinator.bury_dead_holder(opened.session.id)
            session = await database.write(log.append_unheld, opened.session.id, [changed], at=at)
            return msgspec.structs.replace(opened, session=session)
        return opened

    async def _own(self, session: Session) -> None:
        """Become the session's owner; if a living worker has it open, with the first words after that one has left."""
        self._opened.add(session.id)
        if session.owner_worker == self.ground.worker_id:
            return
        if session.owner_worker is not None:
            await self._coordinator.bury_if_gone(session.owner_worker)
        await self.ground.database.write(owners.attach, session.id, self.ground.worker_id)

    def _fact(self, opening: Opening) -> SessionOpened:
        return SessionOpened(
            source=opening.source,  # type: ignore[arg-type] # the faces give one of the sources
            channel=opening.channel,
            model=opening.model or self._default_model,
            title=None if opening.title is None else sessions.clean_title(opening.title),
            system=opening.system,
            workdir=None if opening.workdir is None else str(opening.workdir),
        )

    async def admit(
        self,
        session_id: str,
        said: str | tuple[Content, ...],
        *,
        mode: Mode | None = "queue",
        caller: str = "",
        key: str = "",
    ) -> Admission:
        """Make the words durable and see to it that their turn is played; returns once they are safe.

        Raises Conflict in a worker that was declared dead, Unavailable in one that is about to stop.
        """
        if self.death.done():
            self.death.result()
        if self._coordinator.leaving:
            raise Unavailable("this worker is about to stop and takes no more work")
        parts = (Text(said),) if isinstance(said, str) else said
        if not parts:
            raise Invalid("there is nothing to say")
        words = Words(turn_id=self.ground.ids.make(TURN), parts=parts, mode=mode, caller=caller, key=key)
        return await whole(self._admit(session_id, words))

    async def _admit(self, session_id: str, words: Words) -> Admission:
        at, worker_id, owns = self.ground.clock.now(), self.ground.worker_id, session_id in self._opened
        admission = await self.ground.database.write(_admit, session_id, words, owns=owns, worker_id=worker_id, at=at)
        if admission.began:
            for entry in admission.entries:
                self.ground.bus.publish(session_id, entry)
            self._coordinator.wake(session_id, admission.lease, began=admission)
        elif admission.repeated:
            # Whoever repeats a request wants it done, also if the one who was at it has died.
            self._coordinator.wake(session_id, policy="continue")
        elif not self._coordinator.note(session_id):
            self._coordinator.wake(session_id)
        return admission

    async def say(
        self,
        session_id: str,
        said: str | tuple[Content, ...],
        *,
        mode: Mode | None = "queue",
        caller: str = "",
        key: str = "",
    ) -> AsyncIterator[Entry | Live]:
        """Say something and follow its turn to the end: committed events, and live text in between.

        Whoever stops reading does not stop the turn. Raises what kept the turn from being played or
        recorded; a turn that ended badly is a `turn_ended` event that says so.
        """
        subscription = self.ground.bus.subscribe(session_id)
        try:
            admission = await self.admit(session_id, said, mode=mode, caller=caller, key=key)
            first = 1 if admission.repeated else admission.session.seq + 1 - len(admission.entries)
            async with aclosing(self._follow(session_id, first, subscription, told=admission.began)) as news:
                async for item in _of_turn(news, admission.turn_id):
                    yield item
        finally:
            self.ground.bus.unsubscribe(session_id, subscription)

    async def watch(self, session_id: str, *, after: int = 0) -> AsyncIterator[Entry | Live]:
        """Every event behind `after`, those to come included, and live text; for ever."""
        subscription = self.ground.bus.subscribe(session_id)
        try:
            async with aclosing(self._follow(session_id, after + 1, subscription)) as news:
                async for item in news:
                    if isinstance(item, Failed):
                        continue
                    yield item
        finally:
            self.ground.bus.unsubscribe(session_id, subscription)

    async def _follow(
        self, session_id: str, first: int, subscription: Subscription, *, told: bool = False
    ) -> AsyncGenerator[News, None]:
        """All news of a session, in order and without gaps, whether this worker makes them or another.

        `told` means that the bus brings everything from `first` on, so that the store need not be asked first.
        """
        ringer = asyncio.create_task(
            self._ring_on_news(session_id, subscription, told=told), name=f"watch {session_id}"
        )
        try:
            look = not told
            while True:
                item = None if look else subscription.take()
                if isinstance(item, Live | Failed):
                    yield item
                elif isinstance(item, Entry) and item.seq <= first:
                    if item.seq == first:
                        first += 1
                        yield item
                elif item is not None or look:  # others have written, too
                    for entry in await self.ground.database.read(log.read, session_id, first=first):
                        first = entry.seq + 1
                        yield entry
                    look = False
                else:
                    look = await subscription.wait()
        finally:
            await stop(ringer)

    async def _ring_on_news(self, session_id: str, subscription: Subscription, *, told: bool) -> None:
        """Have the watcher look into the store when something may have been written that did not come over the bus."""
        async for _ in self.ground.database.listen(session_id):
            if not told and not self._coordinator.serves(session_id):
                subscription.ring()
            told = False

    async def resume(self, session_id: str) -> None:
        """Go on with a turn that was left open, though nobody said anything new."""
        self._coordinator.wake(session_id, policy="continue")

    async def interrupt(self, session_id: str) -> bool:
        """Ask the running turn to end; what was said stays. False if no turn is open. Works across processes."""
        request = Input(self.ground.ids.make(TURN), "stop", None)
        if not await self.ground.database.write(_ask_to_stop, session_id, request, at=self.ground.clock.now()):
            return False
        if not self._coordinator.note(session_id):
            self._coordinator.wake(session_id)
        return True

    async def approve(self, session_id: str, turn_id: str, call_id: str, *, allowed: bool, by: str) -> None:
        """Answer a question, once. Raises NotFound, or Conflict if somebody answered before."""
        answer = {"allowed": allowed, "by": by, "at": self.ground.clock.now()}
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

    def take_up(self, session_id: str) -> None:
        """See to a session that has something to do, unless somebody else does already."""
        self._coordinator.wake(session_id, patient=False)

    async def settled(self) -> None:
        """Wait until nothing is in hand."""
        await self._coordinator.settled()

    async def leave(self, session_id: str, reason: EndReason | None = "cli_close") -> None:
        """Let go of a session this worker has open. It is ended, unless a channel will bring more words to it."""
        self._opened.discard(session_id)
        await self.ground.database.write(_leave, session_id, self.ground.worker_id, reason, at=self.ground.clock.now())

    def declare_dead(self, error: Conflict) -> None:
        """Stop everything: others have taken over what this worker had."""
        if not self.death.done():
            self.death.set_exception(error)
        self._coordinator.abandon(error)

    async def drain(self, seconds: float = DRAIN_SECONDS) -> None:
        """Take no more work, and finish or leave what is in hand within the limit."""
        await self._coordinator.drain(seconds)

    async def close(self, reason: str = "it left") -> None:
        """Leave. Whatever is still open is as a crash would have left it, and is taken up by whoever comes next."""
        await self._coordinator.drain(0)
        if self.death.done():
            self.death.exception()
            return
        for session_id in list(self._opened):
            await self.leave(session_id)
        await self.ground.database.write(
            _part, self.ground.worker_id, f"{CLOSED}: {reason}", at=self.ground.clock.now()
        )


def _ask_to_stop(tx: Transaction, session_id: str, request: Input, *, at: int) -> bool:
    """Put the request to stop beside the open turn; False if there is none."""
    if sessions.get(tx, session_id).summary.open_turn is None:
        return False
    inputs.put(tx, session_id, request, at=at)
    return True


def _create(
    tx: Transaction, session_id: str, fact: SessionOpened, owner: str | None, *, at: int
) -> tuple[Session, bool]:
    """A session that has its owner from the start, so that a crash leaves none that is nobody's."""
    create = sessions.create if fact.channel is None else sessions.create_for_channel
    session, new = create(tx, session_id, fact, at=at)
    if owner is not None and owners.attach(tx, session.id, owner):
        session = msgspec.structs.replace(session, owner_worker=owner)
    return session, new


def _admit(tx: Transaction, session_id: str, words: Words, *, owns: bool, worker_id: str, at: int) -> Admission:
    """Admit the words; a session that this worker has open is its own from now on, unless another living one's."""
    admission = admit.admit(tx, session_id, words, worker_id=worker_id, at=at)
    if owns and admission.session.owner_worker != worker_id:
        owners.attach(tx, session_id, worker_id)
    return admission


def _part(tx: Transaction, worker_id: str, reason: str, *, at: int) -> None:
    """A worker that has let go of everything leaves nothing for a sweep to see to."""
    workers.bury(tx, worker_id, reason, at=at)
    workers.clear(tx, worker_id, at=at)


def _leave(tx: Transaction, session_id: str, worker_id: str, reason: EndReason | None, *, at: int) -> None:
    channel = sessions.get(tx, session_id).summary.channel
    owners.detach(tx, session_id, worker_id, None if channel is not None else reason, at=at)


async def _of_turn(news: AsyncIterator[News], turn_id: str) -> AsyncIterator[Entry | Live]:
    """What belongs to one turn, up to its end. Words that joined a running turn follow that one."""
    async for item in news:
        if isinstance(item, Failed):
            if item.turn_id in (None, turn_id):
                raise item.error
            continue
        event = item.event if isinstance(item, Entry) else item
        if isinstance(event, UserSaid) and event.input_id == turn_id:
            turn_id = event.turn_id
        if getattr(event, "turn_id", None) == turn_id:
            yield item
            if isinstance(event, TurnEnded):
                return
