"""The right to write to a session.

A session is held by at most one worker. Each change of hands raises its token, and every write names
the token and the worker it was given to, inside the writing transaction: a worker that slept, was
declared dead or gave the session back finds no row and writes nothing. A lease has no time limit of
its own: it stands until it is released or until its worker is buried (`workers.bury`), so no clock
decides who may write.
"""

from typing import cast

import msgspec

from holdfast.model.errors import Busy, DeclaredDead, NotFound
from holdfast.store import workers
from holdfast.store.database import Transaction


class Lease(msgspec.Struct, frozen=True):
    session_id: str
    worker_id: str
    token: int


def take(tx: Transaction, session_id: str, worker_id: str) -> Lease:
    """Hold the session. Taking what one holds already returns the same lease.

    Raises Busy and names the holder if another worker has it, NotFound if there is no such session,
    DeclaredDead if this worker is not registered or was declared dead.
    """
    row = tx.one("leases.take", session=session_id, worker=worker_id)
    if row is not None:
        return Lease(session_id, worker_id, cast("int", row[0]))
    holder = tx.one("leases.holder", session=session_id)
    if holder is not None and holder[0] == worker_id:
        return Lease(session_id, worker_id, cast("int", holder[1]))
    if holder is not None and holder[0] is None:
        worker = workers.get(tx, worker_id)
        if worker is None or worker.ended_at is not None:
            raise DeclaredDead(f"{worker_id} is not registered or was declared dead; it can hold no session")
        return take(tx, session_id, worker_id)  # whoever held it was buried between the two questions
    raise busy(tx, session_id)


def busy(tx: Transaction, session_id: str) -> Busy | NotFound:
    """The error for a session that could not be had: who holds it, or that it is not there."""
    row = tx.one("leases.holder", session=session_id)
    if row is None:
        return NotFound(f"there is no session {session_id}")
    worker, _, kind, host, pid, _ = row
    return Busy(f"session {session_id} is busy, held by {worker} ({kind}, pid {pid} on {host})", session_id)


def release(tx: Transaction, lease: Lease) -> bool:
    """Give the session back; False if it was no longer ours."""
    return tx.count("leases.release", session=lease.session_id, token=lease.token, worker=lease.worker_id) == 1
