"""What can be submitted to an engine, how it is admitted, and the turn that comes back.

A caller submits a message for a session it knows, a client's request, input that it admits in a transaction of its
own, or a turn that was admitted before. A client may name a session, send its whole history, or repeat an earlier request.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable
from typing import Any, Literal, Self, overload

import msgspec

from holdfast.engine.admission import retried_request
from holdfast.engine.admission.admit import Admission, UserInput, admit
from holdfast.engine.admission.admit_request import admit_request
from holdfast.engine.admission.client_request import AdmittedRequest, ClientRequest, LogNotVerified, PossibleRetry
from holdfast.engine.admission.prepare import prepare
from holdfast.engine.admission.prepared_request import NotPrepared
from holdfast.engine.admission.retried_request import AnsweredTurns
from holdfast.engine.admission.rewind import Rewind
from holdfast.engine.liveness.dead_workers import DeadWorkers
from holdfast.engine.liveness.ownership import OwnedSessions
from holdfast.engine.reset.reset import Resets
from holdfast.engine.services import EngineServices
from holdfast.engine.streaming.bus import LiveText
from holdfast.engine.streaming.watch import SessionWatch
from holdfast.engine.turn.session_cache import SessionCache
from holdfast.model.entry import Entry
from holdfast.model.errors import Busy, Invalid
from holdfast.model.event import GoalSet
from holdfast.model.ids import TURN
from holdfast.model.message import Content, Text
from holdfast.model.session import Session
from holdfast.store.database import Transaction
from holdfast.store.repos import ownership
from holdfast.store.repos.input_queue import InputMode
from holdfast.store.repos.recent_requests import RecentRequest
from holdfast.store.repos.turn_lookup import TurnPosition

MANY_MESSAGES = 200
"""From this many messages on, a client's history is hashed in a thread: about 6 microseconds per message."""
Stream = Literal["live", "durable"]
"""Which text a follower gets: text as the model streams it, or only text that would survive a crash of its worker."""


class NewMessage(msgspec.Struct, frozen=True):
    """A message for a session. With a `key`, the same message from the same caller is the same turn."""

    session_id: str
    content: str | tuple[Content, ...]
    mode: InputMode | None = "queue"
    """What to do while another turn runs; None to refuse."""
    caller: str = ""
    key: str = ""
    instead: Rewind | None = None
    """Turns that are taken back in the same transaction, so that the message replaces them."""
    goal: GoalSet | None = None
    """The goal that the message sets when its turn begins."""


class AdmitInTransaction(msgspec.Struct, frozen=True):
    """Input that a function admits beside what else it writes. The function names this worker as the one that takes the lease."""

    admit: Callable[[Transaction], Admission | None]
    session_id: str | None = None
    """The session of the input, unless the function creates it."""


class AdmittedTurn(msgspec.Struct, frozen=True):
    """A turn that was admitted before, to be followed, and resumed if no worker runs it."""

    session: Session
    turn_id: str
    first: int
    """The event from which on the turn is followed."""
    is_open: bool
    model: str = ""

    @classmethod
    def at(cls, session: Session, position: TurnPosition) -> Self:
        """The whole turn at that position."""
        model, first = position.terms.model or session.summary.model, position.first or session.seq + 1
        return cls(session, position.turn_id, first, position.is_open, model)


Submission = NewMessage | ClientRequest | AdmitInTransaction | AdmittedTurn


class SubmittedTurn:
    """A submitted turn. Follow it to its end or close it; neither stops the turn."""

    def __init__(self, admitted: AdmittedRequest, watch: SessionWatch, stream: Stream | None) -> None:
        self.admission = admitted.admission
        self.model = admitted.model
        self.new = admitted.new
        """Whether the request created the session."""
        self.forked_from = admitted.forked_from
        self._first = admitted.first
        self._watch = watch
        session_id, durable = admitted.admission.session.id, stream == "durable"
        self._subscription = None if stream is None else watch.subscribe(session_id, durable=durable)

    @overload
    def follow(self) -> AsyncGenerator[Entry | LiveText, None]: ...
    @overload
    def follow(self, *, idle_seconds: float) -> AsyncGenerator[Entry | LiveText | None, None]: ...
    def follow(self, *, idle_seconds: float | None = None) -> AsyncGenerator[Any, None]:
        """Yield committed events and text to the end of the turn. Raises what kept it from being run or recorded.

        A turn that failed is a `turn_ended` event that says so. Only for a turn that was submitted with `stream`. With
        `idle_seconds`, None is yielded whenever nothing has happened for that long.
        """
        assert self._subscription is not None, "it was submitted without `stream`"
        return self._watch.turn(self.admission, self._subscription, self._first, idle_seconds=idle_seconds)

    def close(self) -> None:
        if self._subscription is not None:
            self._watch.unsubscribe(self.admission.session.id, self._subscription)


class SubmissionIntake:
    """Admits submissions for one engine. Admitted input is durable."""

    def __init__(
        self,
        services: EngineServices,
        sessions: SessionCache,
        owned: OwnedSessions,
        resets: Resets,
        dead_workers: DeadWorkers,
    ) -> None:
        self._services = services
        self._sessions = sessions
        self._owned = owned
        self._resets = resets
        self._dead_workers = dead_workers
        self.answered = AnsweredTurns()
        """Turns whose clients have the whole answer: the same request again is a new one."""

    async def admit(self, submission: Submission) -> AdmittedRequest | None:
        """Admit the submission; None if its own function admitted nothing."""
        match submission:
            case ClientRequest():
                return await self._admit_request(submission)
            case NewMessage():
                return AdmittedRequest(await self._admit_message(submission))
            case AdmitInTransaction():
                await self.verify(submission.session_id)
                admission = await self._services.database.write(submission.admit)
                return None if admission is None else AdmittedRequest(admission)
            case AdmittedTurn():
                return _existing(submission)

    async def verify(self, session_id: str | None) -> None:
        """Verify the log of a session that no live worker holds, so that nothing is added to a damaged one."""
        if session_id is not None:
            await self._sessions.verify(session_id, self._dead_workers.mark_holder)

    async def _admit_message(self, message: NewMessage) -> Admission:
        content, session_id = message.content, message.session_id
        parts = (Text(content),) if isinstance(content, str) else content
        if not parts:
            raise Invalid("the message is empty")
        given = UserInput(
            turn_id=self._services.ids.make(TURN),
            parts=parts,
            mode=message.mode,
            caller=message.caller,
            key=message.key,
            instead=message.instead,
            before=() if message.goal is None else (message.goal,),
        )
        await self.verify(session_id)
        at, worker_id, owns = self._services.clock.now(), self._services.worker_id, session_id in self._owned

        def work(tx: Transaction) -> Admission:
            admission = admit(tx, session_id, given, worker_id=worker_id, at=at)
            if owns and admission.session.owner_worker != worker_id:
                ownership.attach(tx, session_id, worker_id)
            return admission

        return await self._services.database.write(work)

    async def _admit_request(self, request: ClientRequest) -> AdmittedRequest:
        at = self._services.clock.now()
        await self._resets.renew_channel_if_due(request.channel)
        request = await self._prepare(request)
        try:
            return await self._write_request(request, at)
        except Busy as e:
            # A dead holder blocks nobody, not even a caller that does not want to wait.
            if e.session_id is None or await self._dead_workers.mark_holder(e.session_id) is None:
                raise
            return await self._write_request(request, at)

    async def _join_retried(self, request: ClientRequest, recent: RecentRequest) -> AdmittedRequest | None:
        """Join the turn of an equal request if this one repeats it; None if it is a new one."""
        services, at = self._services, self._services.clock.now()
        await self._dead_workers.mark_if_gone(recent.worker_id)
        if not await services.database.read(retried_request.is_repeat, recent, numbered=request.retried):
            return None
        session, position = await services.database.write(
            retried_request.join, request, recent, worker_id=services.worker_id, at=at
        )
        return _existing(AdmittedTurn.at(session, position))

    async def _prepare(self, request: ClientRequest) -> ClientRequest:
        """Do all that grows with the history before the write, and long work in a thread."""
        if request.history is None and len(request.messages) > MANY_MESSAGES:
            prepared = await asyncio.to_thread(request.hashed)
        else:
            prepared = request.hashed()
        if request.after is None and not any(given.role == "assistant" for given in request.messages):
            return msgspec.structs.replace(request, prepared=prepared.without_retry())
        return await self._services.database.read(prepare, msgspec.structs.replace(request, prepared=prepared))

    async def _write_request(self, request: ClientRequest, at: int) -> AdmittedRequest:
        """Admit the request, or join the turn that it repeats. Logs that it continues are verified first."""
        worker_id, verified, unlike = self._services.worker_id, set[str](), set[str]()

        def is_verified(session_id: str) -> bool:
            return session_id in verified or self._sessions.is_verified(session_id)

        def is_answered(turn_id: str) -> bool:
            return turn_id in unlike or turn_id in self.answered

        while True:
            try:
                return await self._services.database.write(
                    admit_request,
                    request,
                    worker_id=worker_id,
                    at=at,
                    is_verified=is_verified,
                    is_answered=is_answered,
                )
            except PossibleRetry as e:
                if (repeated := await self._join_retried(request, e.recent)) is not None:
                    return repeated
                unlike.add(e.recent.turn_id)
            except NotPrepared:
                prepared = request.hashed()
                request = await self._services.database.read(
                    prepare, msgspec.structs.replace(request, prepared=prepared)
                )
            except LogNotVerified as e:
                await self.verify(e.session_id)
                verified.add(e.session_id)


def _existing(turn: AdmittedTurn) -> AdmittedRequest:
    return AdmittedRequest(Admission(turn.session, turn.turn_id, repeated=True), turn.model, first=turn.first)
