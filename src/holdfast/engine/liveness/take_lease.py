"""Takes the lease of a session, also from a worker that has died."""

from collections.abc import Callable

from holdfast.engine.liveness import lease_transactions
from holdfast.engine.liveness.dead_workers import DeadWorkers
from holdfast.engine.notifications import TopicListener
from holdfast.engine.services import EngineServices
from holdfast.model.errors import Busy
from holdfast.store.repos import sessions
from holdfast.store.repos.leases import Lease

RETRY_SECONDS = 2.0
"""How often to check whether the holder of a session has died, which causes no notification."""


async def take_idle(services: EngineServices, dead_workers: DeadWorkers, session_id: str) -> Lease:
    """Take the lease of a session without an open turn. Raises Busy."""
    try:
        return await services.database.write(lease_transactions.take_idle, session_id, services.worker_id)
    except Busy:
        if await dead_workers.mark_holder(session_id) is None:
            raise
        return await services.database.write(lease_transactions.take_idle, session_id, services.worker_id)


async def take_for_work(
    services: EngineServices,
    dead_workers: DeadWorkers,
    session_id: str,
    *,
    accepts_work: Callable[[], bool],
    is_newest: Callable[[], bool],
    patient: bool,
) -> Lease | None:
    """Take the lease for a task once it is free; None if by then there is nothing to do, or another worker or task does it.

    If this worker holds the lease already, input that has arrived meanwhile may have taken it. The task of that input is newer
    and serves it; its turn may have begun and needs no recovery.
    """
    with TopicListener(services.database, session_id) as listener:
        while accepts_work() and await services.database.read(lease_transactions.has_work, session_id):
            try:
                taken = await services.database.write(sessions.take, session_id, services.worker_id)
                return taken.lease if taken.session is not None or is_newest() else None
            except Busy:
                if await dead_workers.mark_holder(session_id) is not None:
                    continue
                if not patient:
                    return None
                await listener.wait(RETRY_SECONDS)
        return None
