"""Leases: the exclusive right to write to a session.

At most one worker holds a session. Each new lease increases the token, and every write checks token and worker in its own
transaction: a worker that was suspended, declared dead or has released the session finds no row and writes nothing. A
lease does not expire: it is valid until it is released or its worker is marked as dead (`workers.mark_dead`), so no clock
decides who may write.
"""

from typing import cast

import msgspec

from holdfast.model.errors import Busy, DeclaredDead, NotFound
from holdfast.store.database import Row, Transaction
from holdfast.store.repos import workers


class Lease(msgspec.Struct, frozen=True):
    session_id: str
    worker_id: str
    token: int


TOKEN = 4
"""The column of the session table that holds the token."""


def take(tx: Transaction, session_id: str, worker_id: str) -> Lease:
    """Take the lease of the session. A worker that already holds it gets the same lease.

    Raises Busy with the holder if another worker has it, NotFound if there is no such session, and DeclaredDead if this
    worker is not registered or was declared dead.
    """
    return take_row(tx, session_id, worker_id)[0]


def take_row(tx: Transaction, session_id: str, worker_id: str) -> tuple[Lease, Row | None]:
    """Like `take`; also the row of the query `leases.take`, or None if this worker held the session before."""
    row = tx.one("leases.take", session=session_id, worker=worker_id)
    if row is not None:
        return Lease(session_id, worker_id, cast("int", row[TOKEN])), row
    holder = tx.one("leases.get_holder", session=session_id)
    if holder is not None and holder[0] == worker_id:
        return Lease(session_id, worker_id, cast("int", holder[1])), None
    if holder is not None and holder[0] is None:
        worker = workers.get(tx, worker_id)
        if worker is None or worker.ended_at is not None:
            raise DeclaredDead(f"{worker_id} is not registered or was declared dead; it cannot hold a session")
        return take_row(tx, session_id, worker_id)  # the holder was marked dead between the two queries
    raise make_busy_error(tx, session_id)


def make_busy_error(tx: Transaction, session_id: str) -> Busy | NotFound:
    """The error for a session that could not be taken: Busy with its holder, or NotFound."""
    row = tx.one("leases.get_holder", session=session_id)
    if row is None:
        return NotFound(f"there is no session {session_id}")
    worker, _, kind, host, pid, _ = row
    return Busy(f"session {session_id} is busy, held by {worker} ({kind}, pid {pid} on {host})", session_id)


def release(tx: Transaction, lease: Lease) -> bool:
    """Release the session; False if the lease was already lost."""
    return tx.count("leases.release", session=lease.session_id, token=lease.token, worker=lease.worker_id) == 1
