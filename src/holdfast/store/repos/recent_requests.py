"""Requests of the last minutes that started a turn, to recognise retries of clients without an idempotency key."""

import msgspec

from holdfast.model.times import MINUTE
from holdfast.store.database import Transaction

WINDOW = 21 * MINUTE
"""OpenAI's clients wait up to ten minutes for an answer and make up to three attempts."""


class RecentRequest(msgspec.Struct, frozen=True):
    """A request that started a turn, and the worker that accepted it."""

    session_id: str
    turn_id: str
    worker_id: str


def find_newest(tx: Transaction, caller: str, digest: str, *, at: int) -> RecentRequest | None:
    """The newest request of the caller with this body that can still be retried."""
    row = tx.one("recent_requests.find_newest", caller=caller, digest=digest, since=at - WINDOW)
    return None if row is None else RecentRequest(*row)  # type: ignore[arg-type] # the schema checks the types


def add(tx: Transaction, caller: str, digest: str, request: RecentRequest, *, at: int) -> None:
    tx.run(
        "recent_requests.add",
        caller=caller,
        digest=digest,
        turn=request.turn_id,
        session=request.session_id,
        worker=request.worker_id,
        at=at,
    )


def delete_expired(tx: Transaction, *, at: int) -> None:
    """Delete the requests that can no longer be retried."""
    tx.run("recent_requests.delete_old", before=at - WINDOW)


def set_worker(tx: Transaction, caller: str, digest: str, turn_id: str, worker_id: str) -> None:
    """Record that this worker now answers the request."""
    tx.run("recent_requests.set_worker", caller=caller, digest=digest, turn=turn_id, worker=worker_id)
