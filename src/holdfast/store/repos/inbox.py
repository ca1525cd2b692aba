"""Inbound messages of platforms: each is stored once, before it is acknowledged to the platform, and handled in order per chat.

    waiting ─► working ─► done      its text is in a log, it was a command, or it was ignored
       │          │
       └──────────┴─────► dead      dead letter: it cannot be parsed or handled; `replay` queues it again

An attempt is counted before it starts, so a message that crashes the worker becomes a dead letter like any other failure.
"""

from collections.abc import Sequence
from typing import Literal, cast

import msgspec

from holdfast.model.errors import Conflict, NotFound
from holdfast.store.database import Row, Transaction
from holdfast.store.repos import platforms

State = Literal["waiting", "working", "done", "dead"]


def topic(platform: str) -> str:
    """The notification topic of a platform's inbox."""
    return f"inbox {platform}"


class InboundMessage(msgspec.Struct, frozen=True):
    """A row of the inbox, in the order of its columns."""

    id: str
    platform: str
    chat: str
    message: str
    number: int
    digest: str
    payload: str
    state: State
    attempts: int
    repeats: int
    outcome: str
    session_id: str | None
    turn_id: str | None
    at: int
    dismissed_at: int | None = None


class NewInboundMessage(msgspec.Struct, frozen=True):
    """A received message. With a `fault` it could not be parsed."""

    id: str
    chat: str
    message: str
    payload: str
    digest: str
    fault: str = ""


class IntakeResult(msgspec.Struct, frozen=True):
    """Whether a received message is new, or a redelivery, possibly with changed content."""

    post: NewInboundMessage
    new: bool
    changed: bool = False


def put(
    tx: Transaction, platform: str, posts: Sequence[NewInboundMessage], *, at: int, position: str | None = None
) -> list[IntakeResult]:
    """Store the messages and the read position in one transaction. Acknowledge to the platform only after the commit."""
    number = platforms.reserve_inbox_numbers(tx, platform, len(posts), position, at=at) - len(posts)
    taken = [_put(tx, platform, post, number + offset, at=at) for offset, post in enumerate(posts, 1)]
    tx.notify(topic(platform))
    return taken


def _put(tx: Transaction, platform: str, post: NewInboundMessage, number: int, *, at: int) -> IntakeResult:
    where = {"platform": platform, "chat": post.chat, "message": post.message}
    state = "dead" if post.fault else "waiting"
    added = tx.one(
        "inbox.add",
        id=post.id,
        number=number,
        digest=post.digest,
        payload=post.payload,
        state=state,
        outcome=post.fault,
        at=at,
        **where,
    )
    if added is not None:
        return IntakeResult(post, new=True)
    known = tx.one("inbox.count_repeat", **where)
    assert known is not None, "a message that conflicts is there"
    return IntakeResult(post, new=False, changed=known[1] != post.digest)


def get(tx: Transaction, inbound_id: str) -> InboundMessage:
    """Raises NotFound."""
    row = tx.one("inbox.get", id=inbound_id)
    if row is None:
        raise NotFound(f"there is no message {inbound_id} in the inbox")
    return _inbound(row)


def list_heads(tx: Transaction, platform: str, limit: int = 1000) -> list[InboundMessage]:
    """The next message of each chat."""
    return [_inbound(row) for row in tx.all("inbox.list_heads", platform=platform, limit=limit)]


def find_next(tx: Transaction, platform: str, chat: str) -> InboundMessage | None:
    """The next message of a chat."""
    row = tx.one("inbox.find_next", platform=platform, chat=chat)
    return None if row is None else _inbound(row)


def begin(tx: Transaction, inbound_id: str, worker_id: str) -> InboundMessage | None:
    """Count an attempt before it starts; None if the message was handled or the worker no longer serves the platform."""
    row = tx.one("inbox.begin", id=inbound_id, worker=worker_id)
    return None if row is None else _inbound(row)


def put_back(tx: Transaction, inbound_id: str, outcome: str) -> None:
    """Undo the count of an attempt that failed for a reason outside the message."""
    tx.run("inbox.put_back", id=inbound_id, outcome=outcome)


def mark_done(
    tx: Transaction, inbound_id: str, outcome: str, *, session: str | None = None, turn: str | None = None
) -> bool:
    """Mark the message as handled; False if it was. Call it in the transaction that handles it."""
    return tx.one("inbox.mark_done", id=inbound_id, outcome=outcome, session=session, turn=turn) is not None


def mark_dead(tx: Transaction, inbound_id: str, reason: str) -> None:
    """Make it a dead letter, with its payload."""
    tx.run("inbox.mark_dead", id=inbound_id, outcome=reason)


def list_dead(tx: Transaction, limit: int) -> list[InboundMessage]:
    """Dead letters, newest first."""
    return [_inbound(row) for row in tx.all("inbox.list_dead", limit=limit)]


def replay(tx: Transaction, inbound: InboundMessage, *, at: int) -> None:
    """Queue a dead letter again. Raises Conflict if it is not one."""
    number = platforms.reserve_inbox_numbers(tx, inbound.platform, 1, None, at=at)
    if tx.one("inbox.replay", id=inbound.id, number=number) is None:
        raise Conflict(f"message {inbound.id} is {inbound.state}, not dead; there is nothing to replay")
    tx.notify(topic(inbound.platform))


def dismiss(tx: Transaction, inbound: InboundMessage, *, at: int) -> None:
    """Stop listing a dead letter. It stays in the store, and can be replayed. Raises Conflict if it is not one."""
    if tx.one("inbox.dismiss", id=inbound.id, at=at) is None:
        raise Conflict(f"message {inbound.id} is not a listed dead letter; there is nothing to dismiss")


def rename(tx: Transaction, inbound: InboundMessage, chat: str, message: str) -> bool:
    """Give a message that now parses its chat and message id, and queue it; False if that message exists."""
    if tx.one("inbox.rename", id=inbound.id, chat=chat, message=message) is None:
        mark_done(tx, inbound.id, "duplicate of a message that was already handled")
        return False
    tx.notify(topic(inbound.platform))
    return True


def count_by_state(tx: Transaction) -> list[tuple[str, str, int]]:
    """Platform, state and count of all messages that are not done."""
    return [cast("tuple[str, str, int]", row) for row in tx.all("inbox.count_by_state")]


def _inbound(row: Row) -> InboundMessage:
    return InboundMessage(*row)  # type: ignore[arg-type] # the schema checks the types
