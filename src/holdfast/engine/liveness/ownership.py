"""The sessions that a worker has open, also between turns: owning, keeping, handing over and leaving them."""

from collections.abc import Callable

from holdfast.engine.liveness import handover_question
from holdfast.engine.liveness.dead_workers import DeadWorkers
from holdfast.engine.services import EngineServices
from holdfast.model.event import EndReason, Reopened
from holdfast.model.session import Session
from holdfast.store.database import Transaction
from holdfast.store.repos import log, ownership, sessions


class OwnedSessions:
    """The sessions that this worker has open. Another worker may still be the owner of some."""

    def __init__(self, services: EngineServices, dead_workers: DeadWorkers) -> None:
        self._services = services
        self._dead_workers = dead_workers
        self._open: set[str] = set()

    def __contains__(self, session_id: str) -> bool:
        return session_id in self._open

    async def own(self, session: Session) -> None:
        """Become the session's owner. If a live worker has it open, this happens with the first message after that worker left."""
        self._open.add(session.id)
        if session.owner_worker == self._services.worker_id:
            return
        if session.owner_worker is not None:
            await self._dead_workers.mark_if_gone(session.owner_worker)
        await self._services.database.write(ownership.attach, session.id, self._services.worker_id)

    def moved(self, session_id: str, to: Session) -> Session:
        """Replace a session that this worker has open by its successor."""
        if to.id != session_id and session_id in self._open:
            self._open.discard(session_id)
            self._open.add(to.id)
        return to

    async def keep(self, session_id: str, reason: str = "another terminal has it open") -> bool:
        """Become the owner if the previous owner is gone, and reopen the session if it ended with that owner.

        False if a live worker owns it. For a worker that has the session open already.
        """
        session = await self._services.database.read(sessions.get, session_id)
        for worker_id in (session.owner_worker, session.lease_worker):
            if worker_id is not None and worker_id != self._services.worker_id:
                await self._dead_workers.mark_if_gone(worker_id)
        self._open.add(session_id)
        return await self._services.database.write(
            _keep, session_id, self._services.worker_id, reason, at=self._services.clock.now()
        )

    async def ask_for(self, session_id: str) -> None:
        """Ask the owner to hand the session over. The question appears with the approval questions."""
        at, worker_id = self._services.clock.now(), self._services.worker_id
        await self._services.database.write(handover_question.ask, session_id, worker_id, at=at)

    async def hand_over(self, session_id: str, to_worker: str) -> bool:
        """Hand the session over to the worker that asked for it; False if this worker is not the owner or that one is gone."""
        handed = await self._services.database.write(
            ownership.hand_over, session_id, self._services.worker_id, to_worker
        )
        if handed:
            self._open.discard(session_id)
        return handed

    async def leave(self, session_id: str, reason: EndReason | None = "cli_close") -> None:
        """Leave a session that this worker has open. It ends unless a channel can bring more input."""
        self._open.discard(session_id)
        worker_id, at = self._services.worker_id, self._services.clock.now()
        await self._services.database.write(_leave, session_id, worker_id, reason, at=at)

    async def leave_all(self, *, unless: Callable[[str], bool] = lambda session_id: False) -> None:
        for session_id in list(self._open):
            if not unless(session_id):
                await self.leave(session_id)


def _keep(tx: Transaction, session_id: str, worker_id: str, reason: str, *, at: int) -> bool:
    if not ownership.attach(tx, session_id, worker_id):
        return False
    session = sessions.get(tx, session_id)
    if session.summary.ended_at is not None and session.lease_worker is None:
        log.append_unheld(tx, session_id, [Reopened(reason=reason)], at=at)
    return True


def _leave(tx: Transaction, session_id: str, worker_id: str, reason: EndReason | None, *, at: int) -> None:
    channel = sessions.get(tx, session_id).summary.channel
    ownership.detach(tx, session_id, worker_id, None if channel is not None else reason, at=at)
