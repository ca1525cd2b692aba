"""Takes sessions from workers that are certainly gone."""

import logging

from holdfast.identity import fate
from holdfast.model.identity import Identity
from holdfast.store import sessions, workers
from holdfast.store.database import Database
from holdfast.store.workers import Worker

logger = logging.getLogger(__name__)


async def bury_dead_holder(database: Database, session_id: str, ours: Identity, *, at: int) -> str | None:
    """Take a session from its holder if that is certainly gone; the evidence, if so."""
    session = await database.read(sessions.get, session_id)
    return None if session.lease_worker is None else await bury_if_gone(database, session.lease_worker, ours, at=at)


async def bury_if_gone(database: Database, worker_id: str, ours: Identity, *, at: int) -> str | None:
    """Declare a worker dead if its process is certainly gone; the evidence, if so."""
    worker = await database.read(workers.get, worker_id)
    if worker is None or fate(worker.identity, ours) != "gone":
        return None
    evidence = evidence_of_death(worker)
    await database.write(workers.bury, worker.id, evidence, at=at)
    logger.info("%s is gone: %s; its sessions are free", worker.id, evidence)
    return evidence


def evidence_of_death(worker: Worker) -> str:
    """How it is known that a worker of this machine is gone."""
    return f"no process {worker.pid} that started at {worker.process_started} runs on {worker.host}"
