"""Messages of platforms: each is kept once, before the platform is told that it arrived, and dealt with in order.

    waiting ─► working ─► done      its words are in a log, or it was a command, or it is nobody's business
       │          │
       └──────────┴─────► dead      it cannot be understood or dealt with; `replay` makes it wait again

An attempt is counted before it is made, so that a message that brings a worker down is given up like any other that fails.
"""

from collections.abc import Sequence
from typing import Literal, cast

import msgspec

from holdfast.model.errors import Conflict, NotFound
from holdfast.store import platforms
from holdfast.store.database import Row, Transaction

State = Literal["waiting", "working", "done", "dead"]


def topic(platform: str) -> str:
    """What is rung when a platform has news in its inbox."""
    return f"inbox {platform}"


class Letter(msgspec.Struct, frozen=True):
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


class Post(msgspec.Struct, frozen=True):
    """A message that came. With a `fault` it could not be understood."""

    id: str
    chat: str
    message: str
    payload: str
    digest: str
    fault: str = ""


class Taken(msgspec.Struct, frozen=True):
    """What became of a message that came: it is new, or the platform had delivered it before, maybe otherwise."""

    post: Post
    new: bool
    changed: bool = False


def put(tx: Transaction, platform: str, posts: Sequence[Post], *, at: int, position: str | None = None) -> list[Taken]:
    """Keep what came, in one step with how far the platform was read. Only then may the platform be told."""
    number = platforms.receive(tx, platform, len(posts), position, at=at) - len(posts)
    taken = [_put(tx, platform, post, number + place, at=at) for place, post in enumerate(posts, 1)]
    tx.notify(topic(platform))
    return taken


def _put(tx: Transaction, platform: str, post: Post, number: int, *, at: int) -> Taken:
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
        return Taken(post, new=True)
    known = tx.one("inbox.repeat", **where)
    assert known is not None, "a message that conflicts is there"
    return Taken(post, new=False, changed=known[1] != post.digest)


def get(tx: Transaction, letter_id: str) -> Letter:
    """Raises NotFound."""
    row = tx.one("inbox.get", id=letter_id)
    if row is None:
        raise NotFound(f"there is no message {letter_id} in the inbox")
    return _letter(row)


def heads(tx: Transaction, platform: str, limit: int = 1000) -> list[Letter]:
    """Of each chat the message that is next."""
    return [_letter(row) for row in tx.all("inbox.heads", platform=platform, limit=limit)]


def following(tx: Transaction, platform: str, chat: str) -> Letter | None:
    """The message of a chat that is next."""
    row = tx.one("inbox.next", platform=platform, chat=chat)
    return None if row is None else _letter(row)


def begin(tx: Transaction, letter_id: str, worker_id: str) -> Letter | None:
    """Count an attempt, before it is made; None if the message was dealt with, or the worker no longer serves the platform."""
    row = tx.one("inbox.begin", id=letter_id, worker=worker_id)
    return None if row is None else _letter(row)


def put_back(tx: Transaction, letter_id: str, outcome: str) -> None:
    """The attempt does not count: what was wrong was not the message."""
    tx.run("inbox.put_back", id=letter_id, outcome=outcome)


def settle(
    tx: Transaction, letter_id: str, outcome: str, *, session: str | None = None, turn: str | None = None
) -> bool:
    """It has been dealt with; False if that was so before. Call it in the transaction that does so."""
    return tx.one("inbox.settle", id=letter_id, outcome=outcome, session=session, turn=turn) is not None


def bury(tx: Transaction, letter_id: str, reason: str) -> None:
    """Give it up, and keep it as it came."""
    tx.run("inbox.bury", id=letter_id, outcome=reason)


def dead(tx: Transaction, limit: int) -> list[Letter]:
    """What was given up, the newest first."""
    return [_letter(row) for row in tx.all("inbox.dead", limit=limit)]


def replay(tx: Transaction, letter: Letter, *, at: int) -> None:
    """Try a message again that was given up. Raises Conflict if it was not."""
    number = platforms.receive(tx, letter.platform, 1, None, at=at)
    if tx.one("inbox.replay", id=letter.id, number=number) is None:
        raise Conflict(f"message {letter.id} is {letter.state}, not dead; there is nothing to replay")
    tx.notify(topic(letter.platform))


def rename(tx: Transaction, letter: Letter, chat: str, message: str) -> bool:
    """A message is understood now, and has another name: it takes its place in its chat. False if it had come before."""
    if tx.one("inbox.rename", id=letter.id, chat=chat, message=message) is None:
        settle(tx, letter.id, "it had come before, and was understood then")
        return False
    tx.notify(topic(letter.platform))
    return True


def depths(tx: Transaction) -> list[tuple[str, str, int]]:
    """Platform, state and how many, of all that is not done."""
    return [cast("tuple[str, str, int]", row) for row in tx.all("inbox.depths")]


def _letter(row: Row) -> Letter:
    return Letter(*row)  # type: ignore[arg-type] # the schema checks the types
