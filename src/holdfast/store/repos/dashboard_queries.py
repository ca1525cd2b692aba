"""Queries of the dashboard over the whole store: recent sessions, and the events of the last hours."""

from typing import cast

import msgspec

from holdfast.model.session import Session
from holdfast.store.database import Transaction
from holdfast.store.repos import log

MAX_TIMELINE_EVENTS = 30_000
"""The most timeline events per query: about ten megabytes."""


class RecentSession(msgspec.Struct, frozen=True):
    """A session, and the kind of its newest event."""

    session: Session
    last_kind: str


class TimelineEvent(msgspec.Struct, frozen=True):
    """An event that begins or ends something. Only the ends of turns and sessions have a `body`."""

    position: int
    session_id: str
    kind: str
    at: int
    body: str | None


def list_recent_sessions(tx: Transaction, *, since: int, limit: int) -> list[RecentSession]:
    """Sessions used since `since`, newest first, and all sessions with an open turn."""
    rows = tx.all("dashboard_queries.list_recent_sessions", since=since, limit=limit)
    found = {row[0]: row for row in [*rows, *tx.all("dashboard_queries.list_unfinished", limit=limit)]}
    return [RecentSession(log.session_from_row(row[:-1]), cast("str", row[-1] or "")) for row in found.values()]


def find_first_position_since(tx: Transaction, at: int, upto: int) -> int:
    """Approximately the first position of events committed since a time. A clock that was set back can shift it."""
    low, high = 0, upto
    while low < high:
        middle = (low + high) // 2
        row = tx.one("dashboard_queries.find_at_or_after", position=middle)
        if row is not None and cast("int", row[0]) < at:
            low = middle + 1
        else:
            high = middle
    return low


def list_timeline_events(tx: Transaction, *, after: int, since: int) -> tuple[list[TimelineEvent], int]:
    """The newest timeline events after a position and since a time, and the last position read."""
    last = log.get_last_position(tx)
    first = after + 1 if after else find_first_position_since(tx, since, last)
    rows = tx.all("dashboard_queries.list_timeline_events", first=first, last=last, limit=MAX_TIMELINE_EVENTS)
    return [TimelineEvent(*row) for row in reversed(rows)], last  # type: ignore[arg-type] # the schema checks the types


def get_database_size(tx: Transaction) -> int | None:
    """The size of a PostgreSQL store in bytes; None for SQLite, where it is the size of the file."""
    row = tx.one("driver.get_size")
    return None if row is None else cast("int", row[0])


class QueueDepths(msgspec.Struct, frozen=True):
    """The number of waiting items."""

    inputs: int
    questions: int
    drafts: int


def count_waiting(tx: Transaction) -> QueueDepths:
    row = tx.one("dashboard_queries.count_waiting")
    assert row is not None, "counts are always there"
    return QueueDepths(*cast("tuple[int, int, int]", row))


def list_unfinished(tx: Transaction, *, limit: int) -> list[Session]:
    """Running and interrupted sessions, newest first, found by an index."""
    return [log.session_from_row(row[:-1]) for row in tx.all("dashboard_queries.list_unfinished", limit=limit)]
