"""The engine of a worker: what every interface calls. It writes no SQL and builds no context itself."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import overload

import msgspec

from holdfast.engine.admission import input_queue
from holdfast.engine.admission.admit import Admission
from holdfast.engine.admission.client_request import ClientRequest
from holdfast.engine.admission.open_session import OpenedSession, OpenRequest, create
from holdfast.engine.auto_titles import Titles
from holdfast.engine.compaction.compact import CompactionSettings
from holdfast.engine.compaction.standalone import summarize_messages
from holdfast.engine.compaction.summarize import WrittenSummary
from holdfast.engine.delegation.left_parents import list_left_parents
from holdfast.engine.delegation.watch import DelegationWatch
from holdfast.engine.explain import ExplainSettings
from holdfast.engine.goals.actions import GoalLimits, Goals
from holdfast.engine.goals.watch import GoalWatch
from holdfast.engine.liveness.dead_workers import DeadWorkers
from holdfast.engine.liveness.handover_question import HANDOVER
from holdfast.engine.liveness.janitor import SweepStep
from holdfast.engine.liveness.ownership import OwnedSessions
from holdfast.engine.liveness.shutdown import Shutdown
from holdfast.engine.process_port import ProcessPort
from holdfast.engine.reset.reset import NEVER, Resets
from holdfast.engine.rewinds import Rewinds
from holdfast.engine.scheduler import Scheduler
from holdfast.engine.services import EngineServices
from holdfast.engine.session_actions import SessionActions
from holdfast.engine.spending.meter import Meter
from holdfast.engine.streaming.bus import StreamItem
from holdfast.engine.streaming.watch import SessionWatch
from holdfast.engine.submission import (
    AdmitInTransaction,
    AdmittedTurn,
    NewMessage,
    Stream,
    Submission,
    SubmissionIntake,
    SubmittedTurn,
)
from holdfast.engine.turn import manual_compaction
from holdfast.model.answer import Answer
from holdfast.model.entry import Entry
from holdfast.model.errors import Conflict, Invalid
from holdfast.model.event import ApprovalAnswered, Compacted, CompactionFailed, CompactionUndone
from holdfast.model.file_change import FilePort
from holdfast.model.ids import SESSION
from holdfast.model.message import Message
from holdfast.model.session import Session
from holdfast.store.database import Transaction
from holdfast.store.repos import approvals, log, sessions
from holdfast.supervisor import Supervisor
from holdfast.tasks import run_to_completion

logger = logging.getLogger(__name__)
SHORT_LOG, SHORT_TOKENS = 200, 200_000
"""The most events, and tokens of all calls, of a session that is read only to decide whether a page offers an action."""
DRAIN_SECONDS = 10.0
STOP_SECONDS = 5.0
"""How long a worker that shuts down waits for sub-agents of sessions that have ended."""


class Engine:
    """One per worker. Close it; turns that are still open are then continued by the next worker."""

    def __init__(
        self,
        services: EngineServices,
        scheduler: Scheduler,
        default_model: str,
        *,
        supervisor: Supervisor | None = None,
        owned: OwnedSessions | None = None,
        resets: Resets | None = None,
        titles: Titles | None = None,
        processes: ProcessPort | None = None,
        explain: ExplainSettings | None = None,
        sweep_steps: Sequence[SweepStep] = (),
        compaction: Callable[[str], CompactionSettings] | None = None,
        meter: Meter | None = None,
        leaves_queue: bool = False,
        tool_names: Sequence[str] = (),
        files: FilePort | None = None,
        goal_limits: GoalLimits | None = None,
    ) -> None:
        dead_workers = DeadWorkers(services)
        self.services = services
        self.supervisor = supervisor or Supervisor(services.clock)
        """The background tasks of this process."""
        self.owned = owned or OwnedSessions(services, dead_workers)
        """The sessions that this worker has open."""
        self.resets = resets or Resets(services, self.owned, NEVER, None)
        """Replaces sessions with new ones, when a reset is due or a person asks for it."""
        self.titles = titles
        """Gives titles to sessions without one; None if titles are turned off."""
        self.processes = processes
        """The background processes of the store; None if this worker has no access to them."""
        self.explain = explain or ExplainSettings(clock=services.clock)
        """The settings of session explanations."""
        self.meter = meter or Meter(services)
        """The budgets."""
        self.sweep_steps = sweep_steps
        """What a janitor of this worker does besides its own work."""
        self.actions = SessionActions(services.database, services.clock, services.ids, services.identity)
        """Actions on whole sessions."""
        self.tool_names = tool_names
        """The tools of this worker, as the model sees them."""
        self.shutdown = Shutdown(services)
        self.delegation = DelegationWatch(services, scheduler.take_up, leaves_queue=leaves_queue)
        """Starts, wakes and stops what belongs to child sessions."""
        self.goals = Goals(services, goal_limits)
        """The goals of sessions."""
        self.goal_watch = GoalWatch(services, scheduler.run_between_turns, scheduler.continue_left)
        """Checks goals after turns, and ends them at their deadlines."""
        self.death: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Fails when this worker was declared dead: it has lost its sessions and must stop."""
        self.intake = SubmissionIntake(services, scheduler.sessions, self.owned, self.resets, dead_workers)
        self._scheduler = scheduler
        self._dead_workers = dead_workers
        self._default_model = default_model
        self._watch = SessionWatch(services, scheduler.sessions.is_active, scheduler.sessions.streamed)
        self._leaves_queue = leaves_queue
        self.rewinds = Rewinds(services, files, scheduler.close_left)
        """Takes sessions back to an earlier point, with the files that their tools changed."""
        self._compaction = compaction

    async def open(self, opening: OpenRequest) -> OpenedSession:
        """Get or create a session. Creating one that exists returns it. Raises NotFound or Ambiguous for a `ref`."""
        database, at = self.services.database, self.services.clock.now()
        if opening.ref is not None:
            found = await database.read(sessions.resolve, opening.ref)
            opened = OpenedSession(found.session, new=False, others=found.others)
        else:
            owner = self.services.worker_id if opening.own else None
            renewed = await self.resets.renew_channel_if_due(opening.channel)
            session, new = await database.write(
                create,
                self.services.ids.make(SESSION),
                opening.fact(self._default_model, self.services.mode),
                owner,
                at=at,
            )
            opened = OpenedSession(session, new=new or renewed)
        if opening.own:
            await self.owned.own(opened.session)
        summary = opened.session.summary
        mode = None if opening.mode == summary.mode else opening.mode
        model = None if opening.model == summary.model else opening.model
        if mode is None and model is None:
            return opened
        session = await self.actions.change(opened.session.id, mode=mode, model=model, by=opening.by)
        return msgspec.structs.replace(opened, session=session)

    @overload
    async def submit(
        self, submission: NewMessage | ClientRequest | AdmittedTurn, *, stream: Stream | None = None
    ) -> SubmittedTurn: ...
    @overload
    async def submit(self, submission: AdmitInTransaction, *, stream: Stream | None = None) -> SubmittedTurn | None: ...
    async def submit(self, submission: Submission, *, stream: Stream | None = None) -> SubmittedTurn | None:
        """Make the input durable and start or queue its turn. Returns once the input would survive a crash.

        With `stream` the turn can be followed. None if the submission's own function admitted nothing. Raises what that
        function raises, Conflict if this worker was declared dead, and Unavailable if it is shutting down.
        """
        if not isinstance(submission, AdmittedTurn):
            self._check_accepts_work(can_be_left=not isinstance(submission, AdmitInTransaction))
        return await run_to_completion(self._submit(submission, stream))

    async def _submit(self, submission: Submission, stream: Stream | None) -> SubmittedTurn | None:
        admitted = await self.intake.admit(submission)
        if admitted is None:
            return None
        # Subscribe before the turn starts, so that the follower misses nothing.
        turn = SubmittedTurn(admitted, self._watch, stream)
        if not isinstance(submission, AdmittedTurn) or (submission.is_open and not self.is_leaving):
            self._run_turn(admitted.admission)
        return turn

    def _run_turn(self, admission: Admission) -> None:
        """Start the admitted turn, or make sure that a worker will."""
        session_id = admission.session.id
        if self._leaves_queue:
            self._scheduler.stop_after(admission.turn_id)
        if admission.began:
            for entry in admission.entries:
                self.services.bus.publish(session_id, entry)
            self._scheduler.wake(session_id, admission.lease, began=admission)
        elif admission.repeated:
            # A repeated request is to be answered, also if the worker of the first one has died.
            self._scheduler.wake(session_id, policy="continue")
        elif not self._scheduler.sessions.is_active(session_id):
            self._scheduler.wake(session_id, wanted=admission.turn_id)

    def _check_accepts_work(self, *, can_be_left: bool) -> None:
        if self.death.done():
            self.death.result()
        self._scheduler.check_accepts_work(can_be_left=can_be_left)

    @property
    def is_leaving(self) -> bool:
        return self._scheduler.leaving or self.death.done()

    async def cancel(self, session_id: str, turn_id: str) -> bool:
        """Drop a queued turn, or interrupt it if it runs; False if it does neither. The log keeps its input."""
        return await self.drop_queued(session_id, turn_id) or await self.interrupt(session_id, turn_id)

    async def drop_queued(self, session_id: str, turn_id: str) -> bool:
        """Remove input from the queue; False if it is no longer queued. The log keeps it."""
        dropped = await self.services.database.write(
            input_queue.withdraw, session_id, turn_id, at=self.services.clock.now()
        )
        if dropped:
            self.services.bus.wake(session_id)
        return dropped

    def watch(
        self,
        session_id: str,
        *,
        after: int = 0,
        stream: Stream = "live",
        so_far: bool = False,
        output: bool = False,
    ) -> AsyncGenerator[StreamItem, None]:
        """Yield every event after `after`, new ones included, streamed text, and turns that broke. Does not end.

        With `so_far`, a watcher that starts in the middle of a reply first gets its text so far. It may get some of it
        again, as the position of the text in the reply shows. With `output`, it gets the newest output of calls that run here.
        """
        return self._watch.all(session_id, after=after, kept=stream == "durable", so_far=so_far, output=output)

    @property
    def running_sessions(self) -> int:
        """How many sessions this worker runs at the moment."""
        return len(self._scheduler.sessions.active)

    async def resume(self, session_id: str) -> None:
        """Resume a turn that was left open, even if it was asked to stop before."""
        await self._dead_workers.mark_holder(session_id)
        await self.services.database.write(input_queue.void_stops, session_id)
        self._scheduler.wake(session_id, policy="continue")

    async def close_left(self, session_id: str) -> None:
        """Close a turn that a dead or departed worker left open: its unfinished calls are unknown, and its text is kept.

        Does nothing if no turn was left, or if input is queued, which then comes first.
        """
        await self._scheduler.close_left(session_id)

    async def interrupt(self, session_id: str, turn_id: str | None = None, *, leaving: bool = False) -> bool:
        """Interrupt the running turn, or only the named one; False if it is not open. Its messages stay. Works across processes.

        A worker that is `leaving` leaves queued input to others.
        """
        at = self.services.clock.now()
        open_turn = (await self.services.database.read(sessions.get, session_id)).summary.open_turn
        if leaving and open_turn is not None:
            self._scheduler.stop_after(open_turn)
        if await self.services.database.write(input_queue.ask_to_stop, session_id, turn_id, at=at) is None:
            return turn_id is None and await self._pause_goal(session_id)
        if not self._scheduler.sessions.is_active(session_id):
            self._scheduler.wake(session_id)
        return True

    async def _pause_goal(self, session_id: str) -> bool:
        """Pause an active goal between its turns; whether there was one."""
        goal = await self.goals.get(session_id)
        if goal is None or goal.state != "active":
            return False
        await self.goals.pause(session_id, by="", reason="it was interrupted")
        return True

    def is_serving(self, session_id: str) -> bool:
        """Whether this worker runs a turn or another action of the session, or is about to."""
        return self._scheduler.is_serving(session_id)

    async def answer(self, call_key: tuple[str, str, str], answer: Answer, *, by: str) -> ApprovalAnswered:
        """Answer the question about a call (session, turn, call), once. The turn continues, also one that a dead worker left.

        So do the turns of the sessions above that wait for a child session. A cancellation takes effect only afterwards.

        Raises NotFound, Conflict if it was answered before, and Invalid for a rule that would not be safe.
        """
        return await run_to_completion(self._answer(call_key, answer, by))

    async def _answer(self, call_key: tuple[str, str, str], answer: Answer, by: str) -> ApprovalAnswered:
        at = self.services.clock.now()
        given = await self.services.database.write(approvals.answer, *call_key, answer=answer, by=by, at=at)
        session_id, turn_id, _ = call_key
        if turn_id == HANDOVER:
            return given
        for left in [session_id, *await self.services.database.read(list_left_parents, session_id)]:
            if not self._scheduler.sessions.is_active(left):
                self._scheduler.wake(left, policy="continue", patient=False)
        return given

    async def read(self, session_id: str) -> tuple[Session, list[Entry]]:
        """Read the session and its whole log, verified by count and hash."""

        def work(tx: Transaction) -> tuple[Session, list[Entry]]:
            session = sessions.get(tx, session_id)
            return session, log.read_complete(tx, session)

        return await self.services.database.read(work)

    async def compact(self, session_id: str, about: str = "") -> Compacted | CompactionFailed:
        """Compact the context now; `about` says what matters most. Returns the event that records the result.

        Raises Busy while a turn is open or another worker holds the session. Cancelling it stops the work; finished
        parts of the summary are kept for the next time.
        """
        [event] = (await self._scheduler.run_between_turns(session_id, manual_compaction.compacting(about))).events
        assert isinstance(event, Compacted | CompactionFailed), "that is what it commits"
        return event

    async def can_compact(self, session: Session) -> bool:
        """Whether `compact` would be tried now, as far as a look at a short log can tell: yes for a long one."""
        summary = session.summary
        if session.seq > SHORT_LOG or summary.tokens_in + summary.tokens_out > SHORT_TOKENS:
            return True
        return await self._scheduler.look(session.id, manual_compaction.is_worthwhile)

    async def undo_compaction(self, session_id: str) -> CompactionUndone:
        """Undo the newest compaction. Raises Invalid if there is none, and Busy as `compact`."""
        [event] = (await self._scheduler.run_between_turns(session_id, manual_compaction.undoing)).events
        assert isinstance(event, CompactionUndone), "that is what it commits"
        return event

    async def summarize(self, model: str, messages: Sequence[Message], about: str = "") -> WrittenSummary:
        """Summarize messages that belong to no session, as `compact` would. Raises ProviderFailed."""
        if self._compaction is None:
            raise Invalid("compaction is turned off in this process")
        return await summarize_messages(self._compaction(model), messages, about)

    def take_up(self, session_id: str) -> None:
        """Serve a session that has work, unless another worker holds it or it has failed here too often."""
        self._scheduler.take_up(session_id)

    async def settled(self) -> None:
        """Wait until this worker runs no session."""
        await self._scheduler.settled()

    def declare_dead(self, error: Conflict) -> None:
        """Stop everything: others have taken over the sessions of this worker. Does nothing after an orderly shutdown."""
        if self.shutdown.is_recorded:
            return
        logger.error("%s", error)
        if not self.death.done():
            self.death.set_exception(error)
        self._scheduler.abandon(error)

    async def drain(self, seconds: float = DRAIN_SECONDS, *, handing_over: bool = False) -> None:
        """Accept no work, and finish the current steps within the limit or leave their turns.

        With `handing_over` watchers go on watching while another worker continues the turns.
        """
        await self._scheduler.drain(seconds, handing_over=handing_over)

    async def close(self, reason: str = "shut down") -> None:
        """Shut down. Idle sessions that end with this worker end first, with their sub-agents.

        Other open turns are left as a crash would leave them, and the next worker continues them.
        """
        if not self.death.done():
            await self.owned.leave_all(unless=self._scheduler.sessions.is_active)
            await self._stop_children()
        await self._scheduler.drain(0, handing_over=self._scheduler.handing_over)
        if self.titles is not None:
            await self.titles.close()
        if self.death.done():
            self.death.exception()
            return
        await self.owned.leave_all()
        await self.shutdown.record(reason)

    async def _stop_children(self) -> None:
        """Let sub-agents that run here and were asked to stop do so. The next worker stops those that take too long."""
        try:
            async with asyncio.timeout(STOP_SECONDS):
                while await self._scheduler.until_served(await self.delegation.stop_due()):
                    pass  # their own sub-agents stop after them
        except TimeoutError:
            pass
