"""The background task of every worker that checks goals, and ends those that have expired.

It remembers nothing that matters: the store says which goals are due, so the task of any other worker does the same after a
crash. Of several workers that find the same goal, one gets the lease.
"""

import logging
from collections.abc import Awaitable, Callable

from holdfast.engine.goals.decide import expired
from holdfast.engine.goals.notice import send_notice
from holdfast.engine.goals.step import check_and_continue
from holdfast.engine.notifications import TopicListener
from holdfast.engine.services import EngineServices
from holdfast.engine.turn.between_turns import ActionBetweenTurns, CommitBetweenTurns
from holdfast.engine.turn.failures import describe, pause_after
from holdfast.model.errors import Busy, Conflict, HoldfastError, Unavailable
from holdfast.model.goal import OPEN
from holdfast.model.times import SECOND
from holdfast.store.database import Transaction
from holdfast.store.repos import goals, log
from holdfast.supervisor import IDLE_SECONDS, BackgroundTask, Completed, ignore_cycle
from holdfast.tasks import Tasks

logger = logging.getLogger(__name__)
RETRY_SECONDS = 5.0
"""How often goals are looked for while there are any: the death of another worker causes no notification."""
RunBetweenTurns = Callable[[str, ActionBetweenTurns], Awaitable[CommitBetweenTurns]]


class GoalWatch:
    """One per worker. `resume` makes this worker continue a turn that another one left."""

    def __init__(
        self,
        services: EngineServices,
        run_between_turns: RunBetweenTurns,
        resume: Callable[[str], None],
        *,
        pause_after: Callable[[int], float] = pause_after,
    ) -> None:
        self._services = services
        self._run_between_turns = run_between_turns
        self._resume = resume
        self._pause_after = pause_after
        self._tasks = Tasks()
        self._checking: set[str] = set()
        self._not_before: dict[str, float] = {}
        """When a goal may be checked again whose check has failed, on the monotonic clock."""

    def as_task(self) -> BackgroundTask:
        return BackgroundTask(self.work, IDLE_SECONDS)

    async def work(self, completed: Completed = ignore_cycle) -> None:
        """Act on every change of a goal, and at deadlines. Raises every error but those of checks, which it logs."""
        try:
            with TopicListener(self._services.database, goals.TOPIC) as listener:
                while True:
                    await listener.wait(await self._seconds_to_wait())
                    await self.look()
                    completed()
        finally:
            await self._tasks.close()

    async def look(self) -> None:
        """End goals that have expired, and start what is due here. Does not wait for the checks."""
        database, worker_id, at = self._services.database, self._services.worker_id, self._services.clock.now()
        for session_id in await database.read(goals.list_expired, at=at):
            await database.write(_expire, session_id, at=at)
        for session_id in await database.read(goals.list_interrupted, worker_id, at=at):
            self._resume(session_id)
        due = await database.read(goals.list_due, worker_id, at=at)
        self._not_before = {one: when for one, when in self._not_before.items() if one in due}
        for session_id in due:
            waits = self._services.clock.monotonic() < self._not_before.get(session_id, 0.0)
            if session_id not in self._checking and not waits:
                self._checking.add(session_id)
                self._tasks.start(self._check(session_id), name=f"goal {session_id}")

    @property
    def is_checking(self) -> bool:
        return bool(self._checking)

    async def _check(self, session_id: str) -> None:
        try:
            await self._run_between_turns(session_id, check_and_continue)
            goal = await self._services.database.read(goals.get, session_id)
            if goal is not None and goal.due and goal.failed_checks:
                self._delay(session_id, goal.failed_checks)
        except (Busy, Conflict, Unavailable) as e:
            logger.debug("goal of session %s: %s", session_id, e)
        except HoldfastError as e:
            logger.warning("the goal of session %s could not be checked: %s", session_id, describe(e))
            self._delay(session_id, 1)
        finally:
            self._checking.discard(session_id)

    def _delay(self, session_id: str, failures: int) -> None:
        self._not_before[session_id] = self._services.clock.monotonic() + self._pause_after(failures)

    async def _seconds_to_wait(self) -> float:
        deadline = await self._services.database.read(goals.get_next_deadline)
        if deadline is None:
            return IDLE_SECONDS
        now = self._services.clock.monotonic()
        retries = [when - now for when in self._not_before.values()]
        left = (deadline - self._services.clock.now()) / SECOND
        return max(0.05, min(RETRY_SECONDS, left, *retries))


def _expire(tx: Transaction, session_id: str, *, at: int) -> None:
    """End a goal at its deadline, once."""
    goal = goals.get_locked(tx, session_id)
    if goal is None or goal.state not in OPEN or goal.deadline_at > at:
        return
    log.annotate(tx, session_id, expired(goal), at=at)
    ended = goals.get(tx, session_id)
    if ended is not None:
        send_notice(tx, session_id, ended, at=at)
