"""Read-only links to sessions. The store has the hash of a link's token, never the token: a copy of the store opens no link."""

import hashlib
from typing import cast

import msgspec

from holdfast.model.entry import decode
from holdfast.model.errors import Conflict, NotFound
from holdfast.model.event import MessageRemoved, Rewound
from holdfast.store import id_prefix
from holdfast.store.database import Row, Transaction

SHARE = "share-"
"""Prefix of the ids of links."""


class Share(msgspec.Struct, frozen=True):
    """A link to a session as it was at event `upto_seq`."""

    id: str
    digest: str
    session_id: str
    upto_seq: int
    title: str
    created_at: int
    created_by: str
    expires_at: int
    revoked_at: int | None = None
    revoked_by: str | None = None


def digest_of(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


def add(tx: Transaction, share: Share) -> None:
    tx.run(
        "shares.add",
        id=share.id,
        digest=share.digest,
        session=share.session_id,
        upto=share.upto_seq,
        title=share.title,
        at=share.created_at,
        by=share.created_by,
        expires_at=share.expires_at,
    )


def find(tx: Transaction, token: str, *, at: int) -> Share:
    """The link with this token. Raises NotFound if there is none, it has expired or was revoked, or its session is in the trash."""
    row = tx.one("shares.find", digest=digest_of(token), at=at)
    if row is None:
        raise NotFound("this link does not exist, has expired or was revoked")
    return _share(row)


def list_by_session(tx: Transaction, session_id: str) -> list[Share]:
    """The links of a session, newest first, also those that no longer work."""
    return [_share(row) for row in tx.all("shares.list_by_session", session=session_id)]


def resolve(tx: Transaction, ref: str) -> str:
    """The id of the link that a reference means: an id or the beginning of one. Raises NotFound or Ambiguous."""
    return id_prefix.resolve_prefix(tx, "shares.by_prefix", ref, kind=SHARE, what=("link", "links"))


def revoke(tx: Transaction, share_id: str, *, by: str, at: int) -> Share:
    """Revoke the link. Raises NotFound, or Conflict if it was already revoked."""
    revoked = tx.one("shares.revoke", id=share_id, by=by, at=at)
    row = tx.one("shares.get", id=share_id)
    if row is None:
        raise NotFound(f"there is no link {share_id!r}")
    share = _share(row)
    if revoked is None:
        raise Conflict(f"link {share_id} was already revoked by {share.revoked_by}")
    return share


def revoke_all(tx: Transaction, session_id: str, *, by: str, at: int) -> int:
    """Revoke the links of a session that still work; returns how many."""
    return len(tx.all("shares.revoke_all", session=session_id, by=by, at=at))


def list_undone(tx: Transaction, session_id: str, *, after: int) -> list[range]:
    """The numbers of events that were undone or removed, also since the session was shared; only if that was after an event."""
    found = []
    for (body,) in tx.all("shares.list_removals", session=session_id, after=after):
        removed = decode("message_removed", cast("str", body))
        assert isinstance(removed, MessageRemoved), "the query selects this kind"
        found.append(range(removed.seq, removed.seq + 1))
    for seq, kind, body in tx.all("shares.list_rewinds", session=session_id, after=after):
        event = decode(cast("str", kind), cast("str", body))
        assert isinstance(event, Rewound), "the query selects this kind"
        found.append(range(event.to_seq + 1, cast("int", seq)))
    return found


def _share(row: Row) -> Share:
    return Share(*cast("tuple[str, str, str, int, str, int, str, int, int | None, str | None]", row))
