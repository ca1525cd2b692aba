"""The sessions that a worker has open: its own between their turns too, kept, handed over, left."""

from collections.abc import Awaitable, Callable

from holdfast.engine import handover
from holdfast.engine.hand import Ground
from holdfast.model.event import EndReason, Reopened
from holdfast.model.session import Session
from holdfast.store import log, owners, sessions
from holdfast.store.database import Transaction


class Owning:
    """What this worker has open, though another may be its owner for now."""

    def __init__(self, ground: Ground, bury_if_gone: Callable[[str], Awaitable[object]]) -> None:
        self._ground = ground
        self._bury_if_gone = bury_if_gone
        self._open: set[str] = set()

    def __contains__(self, session_id: str) -> bool:
        return session_id in self._open

    async def own(self, session: Session) -> None:
        """Become the session's owner; if a living worker has it open, with the first words after that one has left."""
        self._open.add(session.id)
        if session.owner_worker == self._ground.worker_id:
            return
        if session.owner_worker is not None:
            await self._bury_if_gone(session.owner_worker)
        await self._ground.database.write(owners.attach, session.id, self._ground.worker_id)

    def moved(self, session_id: str, to: Session) -> Session:
        """What this worker had open it has open in the other's place."""
        if to.id != session_id and session_id in self._open:
            self._open.discard(session_id)
            self._open.add(to.id)
        return to

    async def keep(self, session_id: str, reason: str = "another terminal has it open") -> bool:
        """Own the session from now on, if whoever owned it is gone, and reopen it if it was ended with that one.

        False if a living worker owns it. For one that has the session open already.
        """
        session = await self._ground.database.read(sessions.get, session_id)
        for worker_id in (session.owner_worker, session.lease_worker):
            if worker_id is not None and worker_id != self._ground.worker_id:
                await self._bury_if_gone(worker_id)
        self._open.add(session_id)
        return await self._ground.database.write(
            _keep, session_id, self._ground.worker_id, reason, at=self._ground.clock.now()
        )

    async def ask_for(self, session_id: str) -> None:
        """Ask whoever has the session open to leave it to this worker. The question is put where approvals are."""
        at, worker_id = self._ground.clock.now(), self._ground.worker_id
        await self._ground.database.write(handover.ask, session_id, worker_id, at=at)

    async def hand_over(self, session_id: str, to_worker: str) -> bool:
        """Leave the session to another worker that asked for it; False if it is not ours, or that one is gone."""
        handed = await self._ground.database.write(owners.hand_over, session_id, self._ground.worker_id, to_worker)
        if handed:
            self._open.discard(session_id)
        return handed

    async def leave(self, session_id: str, reason: EndReason | None = "cli_close") -> None:
        """Let go of a session this worker has open. It is ended, unless a channel will bring more words to it."""
        self._open.discard(session_id)
        worker_id, at = self._ground.worker_id, self._ground.clock.now()
        await self._ground.database.write(_leave, session_id, worker_id, reason, at=at)

    async def leave_all(self) -> None:
        for session_id in list(self._open):
            await self.leave(session_id)


def _keep(tx: Transaction, session_id: str, worker_id: str, reason: str, *, at: int) -> bool:
    if not owners.attach(tx, session_id, worker_id):
        return False
    session = sessions.get(tx, session_id)
    if session.summary.ended_at is not None and session.lease_worker is None:
        log.append_unheld(tx, session_id, [Reopened(reason=reason)], at=at)
    return True


def _leave(tx: Transaction, session_id: str, worker_id: str, reason: EndReason | None, *, at: int) -> None:
    channel = sessions.get(tx, session_id).summary.channel
    owners.detach(tx, session_id, worker_id, None if channel is not None else reason, at=at)
