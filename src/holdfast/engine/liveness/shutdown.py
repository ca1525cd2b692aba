"""Orderly shutdown of a worker: finds successors, announces the shutdown, and records it."""

from holdfast.engine.liveness.lease_transactions import CLOSED
from holdfast.engine.services import EngineServices
from holdfast.engine.streaming.bus import TurnBroke
from holdfast.model.errors import Unavailable
from holdfast.process_lookup import check_process
from holdfast.store.database import Transaction
from holdfast.store.repos import workers

SERVING = "serve"
"""The kind of worker that continues what others leave."""


class Shutdown:
    """One per worker."""

    def __init__(self, services: EngineServices) -> None:
        self._services = services
        self.is_recorded = False
        """Whether the end of this worker is recorded, or about to be: a heartbeat then finds it dead."""

    async def find_successors(self) -> list[str]:
        """Live workers that are not shutting down and will continue what this one leaves."""
        found = await self._services.database.read(workers.list_alive)
        own = self._services.worker_id
        others = [one for one in found if one.kind == SERVING and one.id != own and one.leaving_at is None]
        return [worker.id for worker in others if check_process(worker.identity, self._services.identity) != "gone"]

    async def announce(self) -> None:
        """Announce the shutdown: sessions released from now on were not left by a crash, and no worker waits for this one."""
        await self._services.database.write(
            workers.announce_shutdown, self._services.worker_id, at=self._services.clock.now()
        )

    def disconnect_watchers(self) -> None:
        """Disconnect the remaining watchers."""
        self._services.bus.publish_to_all(
            TurnBroke(Unavailable("this worker is shutting down; other workers continue its sessions"))
        )

    async def record(self, reason: str) -> None:
        """Record that this worker has released everything and shut down."""
        at = self._services.clock.now()
        self.is_recorded = True
        await self._services.database.write(record_shutdown, self._services.worker_id, f"{CLOSED}: {reason}", at=at)


def record_shutdown(tx: Transaction, worker_id: str, reason: str, *, at: int) -> None:
    """A worker that has released everything leaves nothing for a sweep."""
    workers.mark_dead(tx, worker_id, reason, at=at)
    workers.mark_cleared(tx, worker_id, at=at)
