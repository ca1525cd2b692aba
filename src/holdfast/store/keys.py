"""Idempotency keys: a repeat of a request is recognised for ever, also after a restart."""

from typing import cast

import msgspec

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


class Bound(msgspec.Struct, frozen=True):
    """What a key was used for."""

    session_id: str
    request: str
    turn_id: str


def anywhere(tx: Transaction, caller: str, key: str) -> Bound | None:
    """What the caller used the key for, in whichever session: for requests that do not say to which they belong."""
    row = tx.one("keys.anywhere", caller=caller, key=key)
    return None if row is None else Bound(*row)  # type: ignore[arg-type] # the schema checks the types


def asked(tx: Transaction, session_id: str, caller: str) -> list[str]:
    """The turns that a caller asked for in a session, for one who numbers its requests."""
    return [cast("str", row[0]) for row in tx.all("keys.asked", session=session_id, caller=caller)]
