"""What the dashboard asks of a whole store: the newest sessions with what they do, and the events of the last hours."""

from typing import cast

import msgspec

from holdfast.model.session import Session
from holdfast.store import log
from holdfast.store.database import Transaction

MOMENTS = 30_000
"""Beginnings and ends that are looked at, at the most: some ten megabytes of them."""


class Sprite(msgspec.Struct, frozen=True):
    """A session in few words, and the kind of its newest event."""

    session: Session
    last_kind: str


class Moment(msgspec.Struct, frozen=True):
    """An event that begins or ends something. `body` is there for the end of a turn alone."""

    position: int
    session_id: str
    kind: str
    at: int
    body: str | None


def newest(tx: Transaction) -> int:
    """The newest position; 0 in an empty store."""
    row = tx.one("log.last_position")
    return cast("int", row[0] or 0) if row else 0


def sprites(tx: Transaction, *, since: int, limit: int) -> list[Sprite]:
    """Sessions used since then, the newest first, and open turns whenever they were last heard of."""
    rows = tx.all("board.sprites", since=since, limit=limit)
    found = {row[0]: row for row in [*rows, *tx.all("board.unfinished", limit=limit)]}
    return [Sprite(log.as_session(row[:-1]), cast("str", row[-1] or "")) for row in found.values()]


def first_since(tx: Transaction, at: int, upto: int) -> int:
    """About the first position of events that were committed since an instant. Clocks that were set back may move it."""
    low, high = 0, upto
    while low < high:
        middle = (low + high) // 2
        row = tx.one("board.at_or_after", position=middle)
        if row is not None and cast("int", row[0]) < at:
            low = middle + 1
        else:
            high = middle
    return low


def moments(tx: Transaction, *, after: int, since: int) -> tuple[list[Moment], int]:
    """What began and ended behind a position and since an instant, the newest of it, and the position up to which was looked."""
    last = newest(tx)
    first = after + 1 if after else first_since(tx, since, last)
    rows = tx.all("board.moments", first=first, last=last, limit=MOMENTS)
    return [Moment(*row) for row in reversed(rows)], last  # type: ignore[arg-type] # the schema checks the types


def size(tx: Transaction) -> int | None:
    """How many bytes a store in PostgreSQL takes. One in a file is as large as the file."""
    row = tx.one("driver.size")
    return None if row is None else cast("int", row[0])


class Depths(msgspec.Struct, frozen=True):
    """What waits."""

    inputs: int
    questions: int
    drafts: int


def depths(tx: Transaction) -> Depths:
    row = tx.one("board.depths")
    assert row is not None, "counts are always there"
    return Depths(*cast("tuple[int, int, int]", row))


def unfinished(tx: Transaction, *, limit: int) -> list[Session]:
    """Sessions that are running or interrupted, the newest first: found without a look at the others."""
    return [log.as_session(row[:-1]) for row in tx.all("board.unfinished", limit=limit)]
