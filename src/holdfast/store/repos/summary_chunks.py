"""Finished chunks of a summary that is in progress.

A chunk is found by the exact text of its request: a worker that continues after a crash sends the same requests in the
same order, and finds the finished ones here. The chunks are deleted in the transaction that commits the summary.
"""

import hashlib
from typing import cast

import msgspec

from holdfast.model.errors import LeaseLost
from holdfast.store.database import Transaction
from holdfast.store.repos.leases import Lease


class SummaryChunk(msgspec.Struct, frozen=True):
    """A model's summary of the events from `from_seq` to `to_seq` and all before them."""

    from_seq: int
    to_seq: int
    model: str
    summary: str


def hash_request(request: str) -> str:
    """The key under which the answer to a request is stored."""
    return hashlib.sha256(request.encode("utf-8", "surrogatepass")).hexdigest()


def put(tx: Transaction, lease: Lease, request: str, chunk: SummaryChunk, *, at: int) -> None:
    """Store a chunk. Raises LeaseLost and writes nothing once the lease is lost."""
    row = tx.one(
        "summary_chunks.put",
        session=lease.session_id,
        token=lease.token,
        worker=lease.worker_id,
        request=hash_request(request),
        at=at,
        **msgspec.structs.asdict(chunk),
    )
    if row is None:
        raise LeaseLost(f"{lease.worker_id} no longer holds session {lease.session_id}; the summary was not saved")


def get(tx: Transaction, session_id: str, request: str) -> SummaryChunk | None:
    row = tx.one("summary_chunks.get", session=session_id, request=hash_request(request))
    return None if row is None else SummaryChunk(*row)  # type: ignore[arg-type] # the schema checks the types


def get_progress(tx: Transaction, session_id: str) -> tuple[int, int]:
    """The number of stored chunks, and the last event that they cover."""
    row = tx.one("summary_chunks.count", session=session_id)
    return cast("tuple[int, int]", row or (0, 0))


def delete(tx: Transaction, session_id: str) -> None:
    """Delete the chunks. Call it in the transaction that commits the summary."""
    tx.run("summary_chunks.delete", session=session_id)
