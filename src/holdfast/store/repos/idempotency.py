"""Idempotency keys: a repeated request is recognised permanently, also after a restart."""

from typing import cast

import msgspec

from holdfast.model.errors import KeyReused
from holdfast.store.database import Transaction


def claim(tx: Transaction, session_id: str, caller: str, key: str, *, request: str, turn_id: str, at: int) -> str:
    """Bind the key to a turn; returns the bound turn, which is the earlier one for a repeat.

    `request` is a digest of what was asked. Raises KeyReused if the key came with another request before.
    """
    params = {"session": session_id, "caller": caller, "key": key}
    if tx.one("idempotency.claim", request=request, turn=turn_id, at=at, **params) is not None:
        return turn_id
    row = tx.one("idempotency.find", **params)
    assert row is not None, "a key that conflicts is there"
    if row[0] != request:
        raise KeyReused(f"the idempotency key {key!r} was used for another request in session {session_id}")
    return cast("str", row[1])


class BoundKey(msgspec.Struct, frozen=True):
    """What a key was used for."""

    session_id: str
    request: str
    turn_id: str


def find_by_key(tx: Transaction, caller: str, key: str) -> BoundKey | None:
    """The newest use of the key by the caller in any session, for requests that name no session."""
    row = tx.one("idempotency.find_by_key", caller=caller, key=key)
    return None if row is None else BoundKey(*row)  # type: ignore[arg-type] # the schema checks the types


def list_turns(tx: Transaction, session_id: str, caller: str) -> list[str]:
    """The turns that a caller with numbered keys requested in a session, in order."""
    return [cast("str", row[0]) for row in tx.all("idempotency.list_turns", session=session_id, caller=caller)]
