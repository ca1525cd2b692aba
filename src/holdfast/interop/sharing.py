"""Shares sessions: creates read-only links, which show a session as it was when it was shared."""

import secrets

import msgspec

from holdfast.model.errors import Conflict, Invalid
from holdfast.model.event import UserSaid
from holdfast.model.ids import Ids
from holdfast.model.times import DAY
from holdfast.store.database import Database, Transaction
from holdfast.store.repos import log, sessions, shares
from holdfast.store.repos.shares import Share

DEFAULT_DAYS, MAX_DAYS = 7, 365
TOKEN_BYTES = 32
UNTITLED = "Shared session"
FIRST_EVENTS = 50
"""The first user message is expected among these; arbitrary, but it is among the first few."""
WARNING = (
    "Anyone who has the link can read this session as it is now, without a key: all messages, the arguments and results of "
    "tool calls, and images. They may contain secrets, file contents and names."
)


class NewShare(msgspec.Struct, frozen=True):
    """A link that was just created. The token cannot be read again."""

    share: Share
    token: str

    @property
    def path(self) -> str:
        return f"/share/{self.token}"


async def create(database: Database, ids: Ids, session_id: str, *, days: int, by: str, at: int) -> NewShare:
    """Create a link to the session as it is now. Raises Invalid for a senseless expiry and Conflict for a session in the trash."""
    if not 1 <= days <= MAX_DAYS:
        raise Invalid(f"a link works for 1 to {MAX_DAYS} days, not {days}")
    share_id, token = ids.make(shares.SHARE), secrets.token_urlsafe(TOKEN_BYTES)

    def work(tx: Transaction) -> Share:
        session = sessions.get(tx, session_id)
        if session.summary.trashed_at is not None:
            raise Conflict(f"session {session_id} is in the trash; restore it first")
        digest, title = shares.digest_of(token), session.summary.title or session.summary.preview or UNTITLED
        share = Share(share_id, digest, session_id, session.seq, title, at, by, at + days * DAY)
        shares.add(tx, share)
        return share

    return NewShare(await database.write(work), token)


def shown_title(tx: Transaction, share: Share) -> str:
    """The title of a shared session. A session without a title is named with its first message, unless that was undone."""
    if share.title != sessions.get(tx, share.session_id).summary.preview:
        return share.title
    undone = shares.list_undone(tx, share.session_id, after=0)
    first = log.read(tx, share.session_id, first=1, last=FIRST_EVENTS)
    said = next((entry.seq for entry in first if isinstance(entry.event, UserSaid)), None)
    hidden = bool(undone) if said is None else any(said in seqs for seqs in undone)
    return UNTITLED if hidden else share.title
