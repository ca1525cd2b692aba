"""A worker that leaves: who goes on with what it has, who is told, and how it is written down."""

from holdfast.engine.bus import Failed
from holdfast.engine.hand import Ground
from holdfast.engine.holding import CLOSED
from holdfast.identity import fate
from holdfast.model.errors import Unavailable
from holdfast.model.identity import Identity
from holdfast.store import workers
from holdfast.store.database import Transaction

SERVING = "serve"
"""The kind of workers that go on with what others leave."""


class Departure:
    """One per worker."""

    def __init__(self, ground: Ground, ours: Identity) -> None:
        self._ground = ground
        self._ours = ours

    async def heirs(self) -> list[str]:
        """Other workers, as far as is known alive and not about to leave, that go on with what this one leaves."""
        found = await self._ground.database.read(workers.alive)
        own = self._ground.worker_id
        others = [one for one in found if one.kind == SERVING and one.id != own and one.leaving_at is None]
        return [worker.id for worker in others if fate(worker.identity, self._ours) != "gone"]

    async def announce(self) -> None:
        """Let the others know: what is left from now on is no death, and nobody counts on this worker."""
        await self._ground.database.write(workers.announce, self._ground.worker_id, at=self._ground.clock.now())

    def dismiss(self) -> None:
        """Send those away who still watch."""
        self._ground.bus.publish_to_all(
            Failed(Unavailable("this worker is leaving; its sessions are kept, and gone on with"))
        )

    async def part(self, reason: str) -> None:
        """Write down that this worker, which has let go of everything, has left."""
        at = self._ground.clock.now()
        await self._ground.database.write(_part, self._ground.worker_id, f"{CLOSED}: {reason}", at=at)


def _part(tx: Transaction, worker_id: str, reason: str, *, at: int) -> None:
    """A worker that has let go of everything leaves nothing for a sweep to see to."""
    workers.bury(tx, worker_id, reason, at=at)
    workers.clear(tx, worker_id, at=at)
