"""Finds dead workers and recovers what they left. Never harms a live one.

A worker is dead only if (a) its process on this machine is certainly gone (pid, start time and boot), which is
detected at once; or (b) it runs on another machine and its heartbeat counter has not changed for the stale limit.
The janitor measures that limit on its own monotonic clock and does not count time in which the store did not answer,
because no worker can write a heartbeat then. No wall clock decides. A process of this machine that exists but is
silent (stopped, stalled, suspended) is reported and left alone.

A sweep reads lists that contain only what needs work, so healthy sessions cost nothing. It handles each session in its
own transaction, which also removes the session from the list: a janitor that is killed leaves the rest to the next
one, and two janitors share the work.
"""

import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, Literal

import msgspec

from holdfast.engine import outbound
from holdfast.engine.liveness.dead_workers import evidence_of_death
from holdfast.engine.liveness.lease_transactions import LEFT
from holdfast.engine.notifications import TopicListener
from holdfast.engine.services import EngineServices
from holdfast.engine.turn.recovery import POLICY
from holdfast.model.event import Ended
from holdfast.model.process_identity import Identity
from holdfast.model.times import MINUTE
from holdfast.process_lookup import check_process, is_stopped
from holdfast.store.database import Transaction
from holdfast.store.repos import log as logs
from holdfast.store.repos import ownership, recent_requests, sessions, workers
from holdfast.store.repos.workers import Worker
from holdfast.supervisor import BackgroundTask, Completed, ignore_cycle
from holdfast.tasks import run_all

logger = logging.getLogger(__name__)
CHECK_SECONDS = 1.0
"""How often the janitor checks the processes of this machine."""
SWEEP_LIMIT = 900.0
"""Seconds that a sweep may take. It resets sessions one after another, and each reset may wait some seconds for a process to
end. This suffices for a hundred resets on a slow machine."""
SLOW_SECONDS = 5.0
"""How long the store may take to answer before it counts as unavailable."""
CONTINUED = frozenset(source for source, policy in POLICY.items() if policy == "continue")
"""Sources whose turns continue without a person."""
NO_WORKER = "its turn had no worker"


class JanitorSettings(msgspec.Struct, frozen=True):
    """Intervals of checks and sweeps, and the stale limit."""

    stale_seconds: float
    sweep_seconds: float
    idle_minutes: int


class SeenHeartbeat(msgspec.Struct, frozen=True):
    """A worker's heartbeat counter, and when this janitor saw it change, on its own monotonic clock."""

    beat: int
    since: float


class WorkerVerdict(msgspec.Struct, frozen=True):
    state: Literal["alive", "stopped", "stalled", "silent", "dead", "ended"]
    evidence: str


class SweepAction(msgspec.Struct, frozen=True):
    """One action of a sweep, with its evidence."""

    what: str
    worker_id: str = ""
    session_id: str = ""
    evidence: str = ""


class SweepReport(msgspec.Struct, frozen=True):
    """The result of one sweep."""

    workers: list[tuple[Worker, WorkerVerdict]]
    actions: list[SweepAction]


def classify_worker(
    worker: Worker, seen: SeenHeartbeat, ours: Identity, *, monotonic: float, stale_seconds: float
) -> WorkerVerdict:
    """Whether the worker is alive. Pure."""
    known = check_process(worker.identity, ours)
    silent = monotonic - seen.since
    if known == "gone":
        return WorkerVerdict("dead", evidence_of_death(worker))
    if known == "elsewhere" and silent > stale_seconds:
        return WorkerVerdict(
            "dead", f"its heartbeat counter stayed at {seen.beat} for {silent:.0f} s, and it is not on this machine"
        )
    if is_stopped(worker.identity, ours):
        return WorkerVerdict("stopped", stopped(worker.pid))
    if worker.stalled_since is not None:
        return WorkerVerdict("stalled", "its process writes heartbeats, but its event loop does not respond")
    if known == "elsewhere":
        return WorkerVerdict(
            "alive", f"it is not on this machine; its heartbeat counter has been {seen.beat} for {silent:.0f} s"
        )
    return WorkerVerdict("alive" if silent <= stale_seconds else "silent", f"process {worker.pid} runs")


def stopped(pid: int) -> str:
    """The message about a worker whose process is stopped."""
    return f"process {pid} is stopped (Ctrl-Z or SIGSTOP): continue it with `fg` in its terminal or `kill -CONT {pid}`"


def assess_worker(worker: Worker, ours: Identity) -> WorkerVerdict:
    """What is known without watching. A silent worker on another machine counts as alive: only a janitor that watches can decide."""
    if worker.ended_at is not None:
        return WorkerVerdict("ended", worker.end_reason or "")
    return classify_worker(worker, SeenHeartbeat(worker.beat, 0.0), ours, monotonic=0.0, stale_seconds=0.0)


SweepStep = Callable[[], Awaitable[Sequence[SweepAction]]]
"""An additional step of a sweep; returns its actions."""
SessionHandler = Callable[[str, list[SweepAction]], Coroutine[Any, Any, None]]


class Janitor:
    """One per long-lived worker. `wake` makes this worker's engine resume a session's turn."""

    def __init__(
        self,
        services: EngineServices,
        ours: Identity,
        settings: JanitorSettings,
        wake: Callable[[str], None],
        extra_steps: Sequence[SweepStep] = (),
    ) -> None:
        self._services = services
        self._ours = ours
        self._settings = settings
        self._wake = wake
        self._extra_steps = extra_steps
        self._seen: dict[str, SeenHeartbeat] = {}
        self._asked_at: float | None = None
        """When the janitor sent its pending query to the store; None if none is pending."""

    def as_task(self) -> BackgroundTask:
        return BackgroundTask(self.work, CHECK_SECONDS, SWEEP_LIMIT)

    async def work(self, completed: Completed = ignore_cycle) -> None:
        """Check the workers every second or when one leaves work behind, and sweep periodically. Raises every error."""
        next_sweep = self._services.clock.monotonic()
        notified = False
        with TopicListener(self._services.database, LEFT) as listener:
            while True:
                if self._services.clock.monotonic() >= next_sweep:
                    await self.sweep()
                    next_sweep = self._services.clock.monotonic() + self._settings.sweep_seconds
                else:
                    await self.check_workers(notified=notified)
                completed()
                notified = await listener.wait(CHECK_SECONDS)

    async def check_workers(self, *, notified: bool = False) -> list[SweepAction]:
        """Check only the workers. If one died or, as a notification said, left work behind, recover its sessions."""
        _, actions = await self._mark_dead_workers()
        uncleared = await self._services.database.read(workers.list_uncleared, limit=1)
        if notified or uncleared:
            actions += await self._recover_abandoned()
        return actions

    async def sweep(self) -> SweepReport:
        """Recover everything that needs it: dead workers, orphaned turns, queued input, idle sessions.

        It also deletes the requests that can no longer be retried.
        """
        classified, actions = await self._mark_dead_workers()
        actions += await self._recover_abandoned()
        actions += await self._end_idle()
        await self._services.database.write(recent_requests.delete_expired, at=self._services.clock.now())
        for step in self._extra_steps:
            actions += await step()
        return SweepReport(classified, actions)

    async def _mark_dead_workers(self) -> tuple[list[tuple[Worker, WorkerVerdict]], list[SweepAction]]:
        database, clock = self._services.database, self._services.clock
        classified, actions = [], []
        for worker in await self._read_workers():
            verdict = classify_worker(
                worker,
                self._observe(worker),
                self._ours,
                monotonic=clock.monotonic(),
                stale_seconds=self._settings.stale_seconds,
            )
            classified.append((worker, verdict))
            if verdict.state == "dead" and worker.id != self._services.worker_id:
                freed = await database.write(workers.mark_dead, worker.id, verdict.evidence, at=clock.now())
                logger.info("%s is dead: %s; %d sessions are free", worker.id, verdict.evidence, len(freed))
                actions.append(SweepAction("marked dead", worker.id, evidence=verdict.evidence))
        self._seen = {worker.id: self._seen[worker.id] for worker, _ in classified}
        return classified, actions

    async def _read_workers(self) -> list[Worker]:
        """The live workers in the store. Time without an answer does not count as silence, because no worker can write then."""
        monotonic = self._services.clock.monotonic
        self._asked_at = monotonic() if self._asked_at is None else self._asked_at
        found = await self._services.database.read(workers.list_alive)
        unanswered, self._asked_at = monotonic() - self._asked_at, None
        if unanswered > SLOW_SECONDS:
            self._seen = {id_: SeenHeartbeat(seen.beat, seen.since + unanswered) for id_, seen in self._seen.items()}
        return found

    def _observe(self, worker: Worker) -> SeenHeartbeat:
        """The worker's heartbeat as this janitor observed it."""
        seen = self._seen.get(worker.id)
        if seen is None or seen.beat != worker.beat:
            seen = SeenHeartbeat(worker.beat, self._services.clock.monotonic())
            self._seen[worker.id] = seen
        return seen

    async def _recover_abandoned(self) -> list[SweepAction]:
        """End or recover the sessions of ended workers, and resume orphaned turns and queued input."""
        database = self._services.database
        actions: list[SweepAction] = []
        last = ""
        while page := await database.read(workers.list_uncleared, last):
            for worker in page:
                await self._clear(worker, actions)
            last = page[-1].id
        await self._for_each_session(ownership.list_orphans, self._recover_orphan, actions)
        await self._for_each_session(ownership.list_unclaimed_input, self._wake_for_input, actions)
        return actions

    async def _clear(self, worker: Worker, actions: list[SweepAction]) -> None:
        database, clock = self._services.database, self._services.clock
        evidence = f"{worker.id} is gone: {worker.end_reason}"

        async def end_abandoned(session_id: str) -> None:
            done = await database.write(
                ownership.end_abandoned, session_id, worker, evidence, continued=CONTINUED, at=clock.now()
            )
            if done is not None:
                actions.append(SweepAction(done, worker.id, session_id, evidence))

        while page := await database.read(ownership.list_owned, worker.id):
            await run_all(*map(end_abandoned, page))
        await database.write(workers.mark_cleared, worker.id, at=clock.now())

    async def _for_each_session(
        self, list_page: Callable[[Transaction, str], list[str]], handle: SessionHandler, actions: list[SweepAction]
    ) -> None:
        """Handle every session of a list, page by page; those of one page concurrently, so that they share commits."""
        last = ""
        while page := await self._services.database.read(list_page, last):
            await run_all(*(handle(session_id, actions) for session_id in page))
            last = page[-1]

    async def _recover_orphan(self, session_id: str, actions: list[SweepAction]) -> None:
        """Resume a turn without a worker, or end its session if only a person should continue it."""
        session = await self._services.database.read(sessions.get, session_id)
        turn_id = session.summary.open_turn or ""
        expected = await self._services.database.read(outbound.is_expected, session_id, turn_id)
        if session.summary.source in CONTINUED or expected:
            self._wake(session_id)
            actions.append(SweepAction("recovering", session_id=session_id, evidence=NO_WORKER))
        elif session.owner_worker is None and await self._services.database.write(
            _end_orphan, session_id, at=self._services.clock.now()
        ):
            actions.append(SweepAction("ended, because its owner died", session_id=session_id, evidence=NO_WORKER))

    async def _wake_for_input(self, session_id: str, actions: list[SweepAction]) -> None:
        self._wake(session_id)
        actions.append(SweepAction("woken", session_id=session_id, evidence="a queued message had no worker"))

    async def _end_idle(self) -> list[SweepAction]:
        before = self._services.clock.now() - self._settings.idle_minutes * MINUTE
        evidence = f"unused for {self._settings.idle_minutes} minutes"
        actions: list[SweepAction] = []
        while ended := await self._services.database.write(ownership.end_idle, before, at=self._services.clock.now()):
            actions += [SweepAction("ended as idle", session_id=session.id, evidence=evidence) for session in ended]
        return actions


def _end_orphan(tx: Transaction, session_id: str, *, at: int) -> bool:
    """End a session whose turn has no worker, as of its last activity; the turn can still be resumed."""
    session = sessions.get(tx, session_id)
    if session.worker_id is not None or session.summary.ended_at is not None or session.summary.open_turn is None:
        return False
    ended = Ended(reason="reaped", detail=NO_WORKER, last_sign_at=session.summary.updated_at)
    logs.append_unheld(tx, session_id, [ended], at=at)
    return True
