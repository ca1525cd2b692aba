"""Releases leases, and remembers those that could not be released because the store was unavailable."""

import logging

from holdfast.engine.liveness import lease_transactions
from holdfast.engine.turn.active_session import ActiveSession
from holdfast.model.errors import LeaseLost, NotFound, NotSaved, Unavailable
from holdfast.model.session import Session
from holdfast.store.database import Database
from holdfast.store.repos import sessions
from holdfast.store.repos.leases import Lease

logger = logging.getLogger(__name__)


class LeaseRelease:
    def __init__(self, database: Database) -> None:
        self._database = database
        self.pending: dict[str, Lease] = {}
        """Leases still to be released, by session."""

    async def release(self, lease: Lease, active: ActiveSession | None) -> None:
        """Release the session and save the draft of an unfinished reply. If the store is unavailable, this happens later."""
        if active is not None and active.released:
            return
        try:
            if active is not None and active.said and active.turn.id is not None:
                await active.save_draft(active.said)
            await self._database.write(lease_transactions.give_back, lease)
        except LeaseLost as e:
            logger.warning("session %s was already taken by another worker: %s", lease.session_id, e)
        except (NotSaved, Unavailable) as e:
            logger.warning("session %s cannot be released now: %s", lease.session_id, e)
            self.pending[lease.session_id] = lease

    async def retry(self, lease: Lease) -> Session | None:
        """Try to release a remembered lease; returns the session, or None if the store is unavailable or the session was pruned."""
        session_id = lease.session_id
        session: Session | None = None
        try:
            await self._database.write(lease_transactions.give_back, lease)
            session = await self._database.read(sessions.get, session_id)
        except (NotSaved, Unavailable) as e:
            logger.warning("session %s still cannot be released: %s", session_id, e)
            return None
        except NotFound:  # pruned in the meantime
            pass
        if self.pending.get(session_id) == lease:
            del self.pending[session_id]
        return session
