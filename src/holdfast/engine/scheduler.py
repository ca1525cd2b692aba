"""Runs many sessions at once in one worker, each with one turn at a time.

One task serves a session that has work: it takes the lease (also from a dead worker), recovers what a crash left, runs
the queued turns, and releases the lease in the transaction that ends the last of them. What this process remembers
decides nothing: the queue, the open turn and the lease are read from the store each time.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Coroutine
from typing import Any

from holdfast.engine import outbound
from holdfast.engine.admission.admit import Admission
from holdfast.engine.liveness import lease_transactions, take_lease
from holdfast.engine.liveness.dead_workers import DeadWorkers
from holdfast.engine.liveness.lease_release import LeaseRelease
from holdfast.engine.liveness.take_over import Adopt, take_over
from holdfast.engine.services import EngineServices
from holdfast.engine.streaming.bus import TurnBroke
from holdfast.engine.turn import recovery
from holdfast.engine.turn.active_session import ActiveSession
from holdfast.engine.turn.between_turns import ActionBetweenTurns, CommitBetweenTurns
from holdfast.engine.turn.failures import (
    PASSED_ON,
    StuckSessions,
    TurnAttempts,
    code_of,
    describe,
    is_final,
    pause_after,
)
from holdfast.engine.turn.loop import TurnSettings, closing, run_turns
from holdfast.engine.turn.model_call import restart_reply
from holdfast.engine.turn.recovery import Policy
from holdfast.engine.turn.session_cache import MAX_SESSIONS, SessionCache, build_context, load_log, load_unheld
from holdfast.model.errors import HoldfastError, Unavailable
from holdfast.model.event import Event
from holdfast.model.session import Session
from holdfast.store.repos.leases import Lease
from holdfast.tasks import Tasks, stop

logger = logging.getLogger(__name__)
Prepare = Callable[[Session, Event], TurnSettings]
"""Returns the settings of a session's turns, given the session and the event that opened it. They depend on the session's model."""

OWNED = ("chat", "run", "library", "cron", "batch")
"""Sources whose sessions a worker has open. If that worker is gone, the one that finishes its turn ends the session."""


class Scheduler:
    """One per worker. `adopt` turns the command of a call into a background process if it outlived its worker."""

    def __init__(
        self,
        services: EngineServices,
        prepare: Prepare,
        *,
        adopt: Adopt | None = None,
        pause_after: Callable[[int], float] = pause_after,
    ) -> None:
        self._services = services
        self._dead_workers = DeadWorkers(services)
        self._prepare = prepare
        self._adopt = adopt
        self._pause_after = pause_after
        """Seconds before a turn is tried again that failed, or was at work in a worker that died."""
        self._settings: dict[tuple[str, str], TurnSettings] = {}
        """By session and model; the oldest are dropped."""
        self.sessions = SessionCache(services)
        self._tasks: dict[str, asyncio.Task[None]] = {}
        """The newest task of each session; it waits for the one before it."""
        self._all = Tasks(on_failure=None)
        self._returns = LeaseRelease(services.database)
        self._leaving = False
        self._handing_over = False
        """Whether another worker continues at once what this one leaves, so that watchers can wait for it."""
        self._cut_off: Unavailable | None = None
        self._stuck = StuckSessions()
        self._last: set[str] = set()
        """Turns after which this worker begins no other."""
        self._wanted: set[str] = set()
        """Turns of input that was sent here and is queued for another worker: their sender is here and wants an answer."""

    @property
    def leaving(self) -> bool:
        return self._leaving

    @property
    def handing_over(self) -> bool:
        return self._handing_over

    def check_accepts_work(self, *, can_be_left: bool = False) -> None:
        """Raise Unavailable if this worker is shutting down, or could not reach the store for too long.

        Work that `can_be_left` is accepted during a handover: another worker continues it at once.
        """
        if self._leaving and not (can_be_left and self._handing_over):
            raise Unavailable("this worker is shutting down and accepts no work")
        if self._cut_off is not None:
            raise self._cut_off

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
        """Start a task that serves the session. `began` is the admission of a turn that has just begun: it needs no recovery.

        If another worker holds the session, the task waits until it is free, unless not `patient`. The `wanted` turn is
        continued here if that worker begins it and leaves.
        """
        before = self._tasks.get(session_id)
        task = self._start(session_id, self._serve(session_id, lease, began, policy, before, patient=patient))
        if wanted is not None:
            self._wanted.add(wanted)
            task.add_done_callback(lambda _: self._wanted.discard(wanted))

    def take_up(self, session_id: str) -> None:
        """Serve a session that a sweep has found, unless another worker holds it or it has failed here too often."""
        if not self._stuck.is_left_alone(session_id):
            self.wake(session_id, patient=False)

    def continue_left(self, session_id: str) -> None:
        """Continue a turn that another worker left, unless it has failed here too often."""
        if not self._stuck.is_left_alone(session_id) and session_id not in self._tasks:
            self.wake(session_id, policy="continue", patient=False)

    def is_serving(self, session_id: str) -> bool:
        return session_id in self._tasks

    def _start(self, session_id: str, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        task = self._all.start(work, name=f"serve {session_id}")
        self._tasks[session_id] = task
        task.add_done_callback(lambda done: self._forget(session_id, done))
        return task

    def _forget(self, session_id: str, task: "asyncio.Task[None]") -> None:
        if self._tasks.get(session_id) is task:
            del self._tasks[session_id]

    async def close_left(self, session_id: str) -> None:
        """Close a turn that a dead or departed worker left open, as new input would. Not if input is queued: that comes first."""
        await self._dead_workers.mark_holder(session_id)
        if await self._services.database.read(lease_transactions.is_left, session_id):
            before = self._tasks.get(session_id)
            closing = self._serve(session_id, None, None, "close", before, patient=False)
            await asyncio.wait({self._start(session_id, closing)})

    def stop_after(self, turn_id: str) -> None:
        """Begin no turn after this one: queued input is left for another worker."""
        self._last.add(turn_id)

    async def run_between_turns(self, session_id: str, do: ActionBetweenTurns) -> CommitBetweenTurns:
        """Run an action in a session while no turn is open; returns what was committed.

        Input that arrives meanwhile is queued and gets its turn afterwards. Raises Busy if another worker holds the session
        or a turn is open, and whatever the action raises: then nothing was done. Cancelling it stops the action.
        """
        self.check_accepts_work()
        done: asyncio.Future[CommitBetweenTurns] = asyncio.get_running_loop().create_future()
        task = self._start(session_id, self._hold(session_id, do, done, self._tasks.get(session_id)))
        either: list[asyncio.Future[Any]] = [task, done]
        try:
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        finally:
            if not done.done():
                await stop(task)
        return done.result() if done.done() else _raised(task)

    async def look(self, session_id: str, view: Callable[[ActiveSession, TurnSettings], bool]) -> bool:
        """Look at a session without holding it; the view must write nothing."""
        active = await load_unheld(self._services, session_id)
        return view(active, self._settings_of(active))

    async def _hold(
        self,
        session_id: str,
        do: ActionBetweenTurns,
        done: "asyncio.Future[CommitBetweenTurns]",
        before: "asyncio.Task[None] | None",
    ) -> None:
        lease = await take_lease.take_idle(self._services, self._dead_workers, session_id)
        active: ActiveSession | None = None
        try:
            if before is not None:
                await asyncio.wait({before})  # it has released the session and is about to end
            active = await self.sessions.load(lease)
            self.sessions.active[active.id] = active
            active.last = self._last
            commit = await do(active, self._settings_of(active))
            more = await active.end_turn(commit.events, *commit.also, then=commit.then, check=commit.check)
            done.set_result(commit)
            self.sessions.keep(active)
            if more and active.turn.id is not None:
                began = Admission(active.session, active.turn.id, lease, began=True, entries=(active.entries[-1],))
                self.wake(session_id, lease, began=began)
                active.released = True
        finally:
            self.sessions.active.pop(session_id, None)
            await self._returns.release(lease, active)
            if not done.done() and not self._leaving:
                self.wake(session_id, patient=False)

    async def drain(self, seconds: float, *, handing_over: bool = False) -> None:
        """Accept no work; give the current steps some time to finish, then leave their turns to the next worker.

        A turn that only waits for the answer of a person is left at once. With `handing_over` another worker continues
        them, and watchers here go on watching.
        """
        self._leaving = True
        self._handing_over = handing_over
        for session_id, active in self.sessions.active.items():
            active.pause.set()
            if active.only_waits and session_id in self._tasks:
                self._tasks[session_id].cancel()
        tasks = list(self._all)
        if tasks:
            await asyncio.wait(tasks, timeout=seconds)
        await stop(*tasks)

    async def until_served(self, session_ids: Collection[str]) -> bool:
        """Wait until these sessions are not being served any more; False if none of them was."""
        tasks = [task for session_id, task in self._tasks.items() if session_id in session_ids]
        if tasks:
            await asyncio.wait(tasks)
        return bool(tasks)

    async def settled(self) -> None:
        """Wait until no session is being served."""
        while self._all:
            await asyncio.wait(self._all)

    def abandon(self, error: HoldfastError) -> None:
        """Stop at once and notify the watchers: the sessions of this worker are no longer its own."""
        self._leaving = True
        self._handing_over = False
        self._stop_all(error)

    def suspend(self, error: Unavailable) -> None:
        """Stop at once, notify the watchers, and begin nothing until `unsuspend`: others may soon declare this worker dead."""
        self._cut_off = error
        self._stop_all(error)

    def unsuspend(self) -> None:
        """Accept work again: the store has recorded that this worker is alive."""
        self._cut_off = None

    def _stop_all(self, error: HoldfastError) -> None:
        self._all.cancel()
        for session_id in self._tasks:
            self._services.bus.publish(session_id, TurnBroke(error))

    async def release_owed_leases(self) -> None:
        """Retry releasing the leases that could not be released, and continue turns that need no person for it."""
        tasks = [
            self._start(session_id, self._release_owed_lease(lease, self._tasks.get(session_id)))
            for session_id, lease in self._returns.pending.items()
        ]
        if tasks:
            await asyncio.wait(tasks)
        for task in tasks:
            if not task.cancelled():
                task.result()

    async def _release_owed_lease(self, lease: Lease, before: "asyncio.Task[None] | None") -> None:
        session_id = lease.session_id
        if before is not None:
            await asyncio.wait({before})
        session = await self._returns.retry(lease)
        if session is not None and recovery.POLICY[session.summary.source] == "continue":
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
        """Serve a session. Every failure ends here and is published to the watchers."""
        task = asyncio.current_task()
        try:
            if before is not None:
                await asyncio.wait({before})
            lease = lease or await take_lease.take_for_work(
                self._services,
                self._dead_workers,
                session_id,
                accepts_work=self._accepts_work,
                is_newest=lambda: self._tasks.get(session_id) is task,
                patient=patient,
            )
            if lease is not None:
                await self._play(lease, began, policy)
                self._stuck.discard(session_id)
        except PASSED_ON as e:
            logger.warning("session %s: %s", session_id, e)
            self._services.bus.publish(session_id, TurnBroke(e))
        except Exception as e:  # noqa: BLE001 - logged with its traceback, once, where it is counted
            self._stuck.add(session_id, e)
            self._services.bus.publish(session_id, TurnBroke(e))
        finally:
            if self._leaving and not self._handing_over:
                left = Unavailable(f"this worker is shutting down; the next one continues session {session_id}")
                self._services.bus.publish(session_id, TurnBroke(left))
            # Watchers were not told what other workers wrote while this task waited.
            self._services.bus.wake(session_id)

    def _accepts_work(self) -> bool:
        return not self._leaving and self._cut_off is None

    async def _play(self, lease: Lease, began: Admission | None, policy: Policy | None) -> None:
        """Run the turns of a session until none is left or this worker leaves. An exception leads to another attempt."""
        is_repeat = lease.session_id in self._stuck
        tries = TurnAttempts(played=set() if began is None else {began.turn_id}, is_repeat=is_repeat)
        active: ActiveSession | None = None
        try:
            while active is None or not (active.released or active.pause.is_set()):
                active = None
                try:
                    active = await self.sessions.load(lease, began, may_recover=not tries.played)
                    await self._play_turns(active, tries, policy)
                    break
                except PASSED_ON:
                    raise
                except Exception as e:  # noqa: BLE001 - logged with its traceback, once, where it is counted
                    active = await self._after_exception(active or await load_log(self._services, lease), tries, e)
                began = None
        finally:
            self.sessions.active.pop(lease.session_id, None)
            await self._returns.release(lease, active)

    async def _after_exception(self, active: ActiveSession, tries: TurnAttempts, error: Exception) -> ActiveSession:
        """Pause before the turn is tried again, or end it as failed. Passes the exception on if there is no turn to end."""
        count = tries.note(active, error)
        if not is_final(error, count):
            if active.said and active.turn.id is not None:
                await restart_reply(active, describe(error))
            await asyncio.sleep(self._pause_after(count))
            return active
        said, asked = active.said, active.asked
        active = await load_log(self._services, active.lease)
        if active.turn.id is None:
            raise error
        active.last, active.said, active.asked = self._last, said, asked
        await active.end_turn(closing(active, "failed", describe(error), code_of(error)))
        tries.played.update(filter(None, [active.turn.id]))
        return active

    async def _play_turns(self, active: ActiveSession, tries: TurnAttempts, policy: Policy | None) -> None:
        self.sessions.active[active.id] = active
        active.last = self._last
        if self._leaving:
            active.pause.set()
        recovered = active.turn.id is not None and active.turn.id not in tries.played
        tries.was_left = tries.was_left or recovered or active.session.summary.ended_at is not None
        active.inherited = tries.was_left and active.session.summary.source in OWNED
        settings = self._settings_of(active)
        if recovered and not await self._recover(active, settings, policy):
            return
        active.is_taken_up = True
        if active.lacks_context:
            await build_context(active)
        if active.turn.id is None and not active.released and not await active.begin_next():
            self.sessions.keep(active)
        if await run_turns(active, settings):
            self.sessions.keep(active)

    def _settings_of(self, active: ActiveSession) -> TurnSettings:
        """The settings of the session's turns, prepared once for each session and model."""
        key = active.id, active.session.summary.model
        if key not in self._settings:
            self._settings[key] = self._prepare(active.session, active.opened)
            if len(self._settings) > MAX_SESSIONS:
                self._settings.pop(next(iter(self._settings)))
        return self._settings[key]

    async def _recover(self, active: ActiveSession, settings: TurnSettings, policy: Policy | None) -> bool:
        """Recover the turn that a dead worker left, before anything acts; False if that is left to the next worker."""
        policy = await self._policy(active, policy)
        return await take_over(active, settings, policy, adopt=self._adopt, pause_after=self._pause_after)

    async def _policy(self, active: ActiveSession, wanted: Policy | None) -> Policy:
        """Whether the turn continues without a person, or is closed because a person decides."""
        turn_id = active.turn.id or ""
        if await self._services.database.read(outbound.is_expected, active.id, turn_id):
            return "continue"
        ours: Policy | None = "continue" if turn_id in self._wanted else None
        return wanted or ours or recovery.POLICY[active.session.summary.source]


def _raised(task: "asyncio.Task[None]") -> CommitBetweenTurns:
    """Raise what kept the task from completing its action."""
    if task.cancelled():  # not by the caller, which would not be here then
        raise Unavailable("this worker is shutting down; finished work is kept and can be continued")
    task.result()
    raise AssertionError("a task that does not raise has completed its action")
