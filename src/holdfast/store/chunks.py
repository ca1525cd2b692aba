"""Finished pieces of a summary that is still being written.

A piece is found by what was asked for, word for word: a worker that goes on after a crash asks for the same
pieces in the same order, and gets those that were finished from here. They go with the commit of the summary.
"""

import hashlib
from typing import cast

import msgspec

from holdfast.model.errors import LeaseLost
from holdfast.store.database import Transaction
from holdfast.store.leases import Lease


class Chunk(msgspec.Struct, frozen=True):
    """What a model made of the events from `from_seq` to `to_seq` and of all before them."""

    from_seq: int
    to_seq: int
    model: str
    summary: str


def named(request: str) -> str:
    """The name under which the answer to a request is kept."""
    return hashlib.sha256(request.encode("utf-8", "surrogatepass")).hexdigest()


def put(tx: Transaction, lease: Lease, request: str, chunk: Chunk, *, at: int) -> None:
    """Keep a piece. Raises LeaseLost, having written nothing, once the lease has changed hands."""
    row = tx.one(
        "chunks.put",
        session=lease.session_id,
        token=lease.token,
        worker=lease.worker_id,
        request=named(request),
        at=at,
        **msgspec.structs.asdict(chunk),
    )
    if row is None:
        raise LeaseLost(f"{lease.worker_id} no longer holds session {lease.session_id}; the summary was not kept")


def get(tx: Transaction, session_id: str, request: str) -> Chunk | None:
    row = tx.one("chunks.get", session=session_id, request=named(request))
    return None if row is None else Chunk(*row)  # type: ignore[arg-type] # the schema checks the types


def progress(tx: Transaction, session_id: str) -> tuple[int, int]:
    """How many pieces are kept, and up to which event they reach."""
    row = tx.one("chunks.count", session=session_id)
    return cast("tuple[int, int]", row or (0, 0))


def drop(tx: Transaction, session_id: str) -> None:
    """Forget the pieces. Call it in the transaction that commits what they were for."""
    tx.run("chunks.drop", session=session_id)
