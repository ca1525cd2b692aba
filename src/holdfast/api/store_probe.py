"""Check whether the store is writable: one check at a time, with a time limit."""

import asyncio

from holdfast.engine.services import EngineServices
from holdfast.model.errors import HoldfastError
from holdfast.store.repos import workers
from holdfast.tasks import Tasks, wait_for_first

LIMIT_SECONDS = 0.8
"""Time limit of the store: callers of `/ready` expect a response within a second."""


class StoreProbe:
    """Concurrent callers share one check: a store that hangs gets no second one."""

    def __init__(self) -> None:
        self._tasks = Tasks()
        self._check: asyncio.Task[str] | None = None

    async def ask(self, services: EngineServices, seconds: float = LIMIT_SECONDS) -> str:
        """Describe what is wrong with the store; "ok" if nothing is."""
        if (damage := services.database.damage()) is not None:
            return f"corrupt: {damage}"
        if self._check is None or self._check.done():
            self._check = self._tasks.start(_write(services), name="store probe")
        await wait_for_first(self._check, seconds=seconds)
        if not self._check.done():
            return f"unavailable: the store did not respond within {seconds:g} s"
        return self._check.result()

    async def close(self) -> None:
        await self._tasks.close()


async def _write(services: EngineServices) -> str:
    """Do a real write, which fails on a full disk or a read-only file: an extra heartbeat, which does no harm."""
    try:
        await services.database.write(workers.record_heartbeat, services.worker_id, at=services.clock.now())
    except HoldfastError as e:
        return f"{e.code}: {e}"
    return "ok"
