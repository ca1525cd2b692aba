"""The background task of every worker that serves delegated work.

It starts the children of sessions that this worker runs, wakes idle parents whose children have ended, and stops children
that were asked to stop or have reached their time limits. It remembers nothing that matters: the store says what is left
to do, so the task of any other worker does the same after a crash.
"""

from collections.abc import Callable

from holdfast.engine.delegation.stop import stop_child
from holdfast.engine.notifications import TopicListener
from holdfast.engine.services import EngineServices
from holdfast.model.times import SECOND
from holdfast.store.repos import delegations
from holdfast.supervisor import IDLE_SECONDS, BackgroundTask, Completed, ignore_cycle

RETRY_SECONDS = 5.0
"""When a child that was asked to stop and has not ended is asked again."""


class DelegationWatch:
    """One per worker. `serve` makes this worker run a session, unless another one holds it."""

    def __init__(self, services: EngineServices, serve: Callable[[str], None], *, leaves_queue: bool = False) -> None:
        self._services = services
        self._serve = serve
        self._leaves_queue = leaves_queue
        self._asked: dict[str, float] = {}
        """When this worker last stopped a child, by its id, on the monotonic clock."""

    def as_task(self) -> BackgroundTask:
        return BackgroundTask(self.work, IDLE_SECONDS)

    async def work(self, completed: Completed = ignore_cycle) -> None:
        """Act on every change of delegated work, and at time limits. Raises every error."""
        with TopicListener(self._services.database, delegations.TOPIC) as listener:
            while True:
                await listener.wait(await self._seconds_to_wait())
                await self.check()
                completed()

    async def check(self) -> None:
        """Do now whatever is left to do."""
        database = self._services.database
        for session_id in await database.read(
            delegations.list_unclaimed, self._services.worker_id, takes_left=not self._leaves_queue
        ):
            self._serve(session_id)
        await self.stop_due()

    async def stop_due(self) -> set[str]:
        """Stop the children that were asked to stop or have reached their time limits; returns those that have not ended."""
        database, clock = self._services.database, self._services.clock
        found = await database.read(delegations.list_to_stop, at=clock.now())
        self._asked = {one.child_id: self._asked[one.child_id] for one in found if one.child_id in self._asked}
        for record in found:
            if clock.monotonic() - self._asked.get(record.child_id, -RETRY_SECONDS) >= RETRY_SECONDS:
                self._asked[record.child_id] = clock.monotonic()
                await database.write(stop_child, record.child_id, at=clock.now())
        return {record.child_id for record in found}

    async def _seconds_to_wait(self) -> float:
        if self._asked:
            return RETRY_SECONDS
        deadline = await self._services.database.read(delegations.get_next_deadline)
        left = IDLE_SECONDS if deadline is None else (deadline - self._services.clock.now()) / SECOND
        return max(0.05, min(IDLE_SECONDS, left))
