"""Lists of sessions: filters, pages and counts."""

import base64
import binascii
import hashlib

import msgspec

from holdfast.model.errors import Invalid
from holdfast.model.session import CHILD, Session, State
from holdfast.store.database import Transaction
from holdfast.store.repos import log, meta

LAST = 2**62


class SessionFilters(msgspec.Struct, frozen=True, kw_only=True):
    """Which sessions a list shows. `trashed` is 0 for those outside the trash, 1 for those in it, 2 for both.

    With 1, `sides` adds auxiliary requests and `children` child sessions, which the source `delegate` adds as well.
    """

    source: str | None = None
    channel: str | None = None
    model: str | None = None
    state: State | None = None
    pinned: int | None = None
    trashed: int = 0
    sides: int = 0
    children: int = 0


EVERYTHING = SessionFilters(trashed=2, sides=1, children=1)
SAMPLE, COMMON = 200, 20
"""A filter that matches fewer than one in twenty of the newest two hundred sessions is rare."""


class SessionPage(msgspec.Struct, frozen=True):
    sessions: list[Session]
    next: str | None


def list_page(
    tx: Transaction, filters: SessionFilters, *, limit: int, cursor: str | None = None, rare: bool | None = None
) -> SessionPage:
    """A page of sessions, newest activity first. A session used between two pages moves to the front.

    `rare` says whether few sessions match; by default that is measured. It affects the speed, not the result. Raises Invalid
    for a cursor of another store or another list, and for a limit below 1.
    """
    if limit < 1:
        raise Invalid(f"the limit must be at least 1, not {limit}")
    mark = _mark(tx, filters)
    before_at, before_id = _decode_cursor(cursor, mark) if cursor else (LAST, "")
    rare = _is_rare(tx, filters) if rare is None else rare
    query = "session_list.list_page_rare" if rare else "session_list.list_page"
    rows = tx.all(query, limit=limit + 1, before_at=before_at, before_id=before_id, **msgspec.structs.asdict(filters))
    sessions = [log.session_from_row(row) for row in rows[:limit]]
    more = len(rows) > limit
    return SessionPage(sessions, _cursor(sessions[-1], mark) if more else None)


def _is_rare(tx: Transaction, filters: SessionFilters) -> bool:
    """Whether few of the newest sessions match: then a scan of the whole table is faster."""
    if filters in (SessionFilters(), EVERYTHING):
        return False
    everything = msgspec.structs.asdict(EVERYTHING)
    newest = tx.all("session_list.list_page", limit=SAMPLE, before_at=LAST, before_id="", **everything)
    matching = sum(matches_filters(log.session_from_row(row), filters) for row in newest)
    return matching * COMMON < len(newest)


def matches_filters(session: Session, filters: SessionFilters) -> bool:
    """Whether a list with these filters shows the session. Pure."""
    summary = session.summary
    return (
        filters.source in (None, summary.source)
        and filters.channel in (None, summary.channel)
        and filters.model in (None, summary.model)
        and filters.state in (None, session.state)
        and filters.pinned in (None, summary.pinned)
        and filters.trashed in (2, int(summary.trashed_at is not None))
        and (filters.sides == 1 or summary.side_of is None)
        and (filters.children == 1 or filters.source == CHILD or summary.source != CHILD)
    )


def list_in_use(tx: Transaction, limit: int) -> list[Session]:
    """Open sessions with a lease, an owner or an open turn, found without scanning the others."""
    return [log.session_from_row(row) for row in tx.all("session_list.list_in_use", limit=limit)]


def _mark(tx: Transaction, filters: SessionFilters) -> str:
    """A digest of the store and the filters that a cursor belongs to."""
    return hashlib.sha256(meta.get_store_id(tx).encode() + msgspec.json.encode(filters)).hexdigest()[:12]


def _cursor(session: Session, mark: str) -> str:
    position = f"{mark} {session.summary.updated_at} {session.id}"
    return base64.urlsafe_b64encode(position.encode()).decode().rstrip("=")


def _decode_cursor(cursor: str, mark: str) -> tuple[int, str]:
    try:
        text = base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)).decode("ascii")
        theirs, at, session_id = text.split(" ")
        position = int(at), session_id
    except (binascii.Error, ValueError) as e:
        raise Invalid("invalid cursor; start again without a cursor") from e
    if not 0 <= position[0] <= LAST:
        raise Invalid("invalid cursor; start again without a cursor")
    if theirs != mark:
        raise Invalid("this cursor belongs to another store or another list; start again without a cursor")
    return position


class SessionCount(msgspec.Struct, frozen=True):
    """The number of sessions with the same source, end reason or open state, and worker."""

    source: str
    end_reason: str | None
    is_quarantined: int
    is_in_turn: int
    worker_id: str | None
    count: int


def count_by_kind(tx: Transaction) -> list[SessionCount]:
    """The sessions outside the trash, counted by kind; `engine.stats` interprets them."""
    return [SessionCount(*row) for row in tx.all("session_list.count_by_kind")]  # type: ignore[arg-type] # the schema checks the types
