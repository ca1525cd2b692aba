"""A fork in one transaction; the engine verifies the shared part in a read first, because that takes time proportional to the log."""

from holdfast.model.event import Source
from holdfast.model.session import Session
from holdfast.store.database import Transaction
from holdfast.store.repos import session_forks


def fork_session(
    tx: Transaction, parent_id: str, new_id: str, *, at: int, at_seq: int | None = None, source: Source | None = None
) -> Session:
    shared = session_forks.prepare_fork(tx, parent_id, at_seq)
    return session_forks.fork(tx, shared, new_id, at=at, source=source)
