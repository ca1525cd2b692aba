"""Idempotency keys: a repeat of a request is recognised for ever, also after a restart."""

from typing import cast

from holdfast.model.errors import KeyReused
from holdfast.store.database import Transaction


def claim(tx: Transaction, session_id: str, caller: str, key: str, *, request: str, turn_id: str, at: int) -> str:
    """Bind the key to a turn; the turn it is bound to, which is an older one if this is a repeat.

    `request` is a digest of what was asked. Raises KeyReused if the key came with another request before.
    """
    params = {"session": session_id, "caller": caller, "key": key}
    if tx.one("keys.claim", request=request, turn=turn_id, at=at, **params) is not None:
        return turn_id
    row = tx.one("keys.find", **params)
    assert row is not None, "a key that conflicts is there"
    if row[0] != request:
        raise KeyReused(f"the idempotency key {key!r} was used for another request in session {session_id}")
    return cast("str", row[1])
