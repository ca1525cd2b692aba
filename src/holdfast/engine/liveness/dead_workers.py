"""Declares workers dead whose processes are certainly gone, which frees their sessions."""

import logging

from holdfast.engine.services import EngineServices
from holdfast.model.process_identity import Identity
from holdfast.process_lookup import check_process
from holdfast.store.database import Database
from holdfast.store.repos import sessions, workers
from holdfast.store.repos.workers import Worker

logger = logging.getLogger(__name__)
RELEASED = "its holder has released it"


class DeadWorkers:
    """Checks the other workers of this machine, for one worker."""

    def __init__(self, services: EngineServices) -> None:
        self._services = services

    async def mark_if_gone(self, worker_id: str) -> str | None:
        """Declare another worker dead if its process is certainly gone; returns the evidence."""
        if worker_id == self._services.worker_id:
            return None
        at = self._services.clock.now()
        return await mark_dead_if_gone(self._services.database, worker_id, self._services.identity, at=at)

    async def mark_holder(self, session_id: str) -> str | None:
        """See `mark_dead_holder`."""
        at = self._services.clock.now()
        return await mark_dead_holder(self._services.database, session_id, self._services.identity, at=at)


async def mark_dead_holder(database: Database, session_id: str, ours: Identity, *, at: int) -> str | None:
    """Take a session from its holder if that worker is certainly gone; returns why it is free, None if it is not.

    The janitor or the holder itself may have been faster.
    """
    holder = (await database.read(sessions.get, session_id)).lease_worker
    if holder is None:
        return RELEASED
    evidence = await mark_dead_if_gone(database, holder, ours, at=at)
    if evidence is None and (await database.read(sessions.get, session_id)).lease_worker != holder:
        return RELEASED
    return evidence


async def mark_dead_if_gone(database: Database, worker_id: str, ours: Identity, *, at: int) -> str | None:
    """Declare a worker dead if its process is certainly gone; returns the evidence."""
    worker = await database.read(workers.get, worker_id)
    if worker is None or worker.ended_at is not None or check_process(worker.identity, ours) != "gone":
        return None
    evidence = evidence_of_death(worker)
    await database.write(workers.mark_dead, worker.id, evidence, at=at)
    logger.info("%s is gone: %s; its sessions are free", worker.id, evidence)
    return evidence


def evidence_of_death(worker: Worker) -> str:
    """The evidence that a worker of this machine is gone."""
    return f"its process {worker.pid} on {worker.host.partition('#')[0]} has ended"
