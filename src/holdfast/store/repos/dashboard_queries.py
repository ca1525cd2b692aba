"""Queries of the dashboard over the whole store: recent sessions, and the events of the last hours."""

import json
import re
from collections.abc import Sequence
from typing import Literal, cast

import msgspec

from holdfast.model.session import Session
from holdfast.store.database import Transaction
from holdfast.store.id_batches import all_by_ids
from holdfast.store.repos import log
from holdfast.store.repos.session_list import SessionFilters

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


Sort = Literal["activity", "created", "title", "messages", "tokens", "cost"]


class SortedQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Filters and an order that need a scan of all sessions. Times are those of the last activity."""

    filters: SessionFilters
    sort: Sort = "activity"
    folder: str = ""
    """A part of the directory in which the session was opened."""
    since: int = 0
    until: int = log.TO_THE_END
    min_cost: int = 0
    """In billionths of a US dollar."""
    failed: bool | None = None
    """Whether the newest turn failed; None for both."""


def list_sorted(tx: Transaction, query: SortedQuery, *, limit: int, start: int) -> list[tuple[Session, int]]:
    """A page of the sessions that match, each with its cost."""
    filters = query.filters
    rows = tx.all(
        "dashboard_queries.list_sorted",
        trashed=filters.trashed,
        source=filters.source,
        channel=filters.channel,
        model=filters.model,
        pinned=filters.pinned,
        state=filters.state,
        since=query.since,
        until=query.until,
        min_cost=query.min_cost,
        folder=_folder_pattern(query.folder) if query.folder else None,
        failed=None if query.failed is None else int(query.failed),
        sort=query.sort,
        limit=limit,
        start=start,
    )
    return [(log.session_from_row(row[:-1]), cast("int", row[-1])) for row in rows]


def _folder_pattern(folder: str) -> str:
    """The LIKE pattern for the event, in lower case, that opens a session in a directory whose path contains this text."""
    escaped = re.sub("[!%_]", r"!\g<0>", json.dumps(folder)[1:-1].lower())
    return f'%"workdir":"%{escaped}%"%'


def map_costs(tx: Transaction, listed: Sequence[Session]) -> dict[str, int]:
    """The costs of the sessions of a page, in billionths of a US dollar."""
    rows = all_by_ids(tx, "dashboard_queries.list_costs_of", [session.id for session in listed])
    return {cast("str", session_id): cast("int", cost) for session_id, cost in rows}


def list_models(tx: Transaction, *, limit: int) -> list[str]:
    """The models of sessions, the most used first."""
    return [cast("str", row[0]) for row in tx.all("dashboard_queries.list_models", limit=limit)]
