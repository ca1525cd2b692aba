"""Sessions: create, find, list, and what can happen to a whole one."""

import base64
import binascii
import hashlib
from typing import cast

import msgspec

from holdfast.model.entry import GENESIS
from holdfast.model.errors import Invalid, NotFound
from holdfast.model.event import (
    Ended,
    EndReason,
    Event,
    Forked,
    Pinned,
    Reopened,
    Restored,
    SessionOpened,
    Source,
    Titled,
    Trashed,
    Unpinned,
)
from holdfast.model.ids import SESSION, SHORTEST_PREFIX
from holdfast.model.session import Session, State, Summary, summarise, title_line
from holdfast.model.turn import half_said, loose_ends
from holdfast.store import aliases, log, meta, refs
from holdfast.store.database import Transaction

LAST = 2**62
ERASING = (
    "erase_events",
    "erase_draft",
    "erase_keys",
    "erase_inputs",
    "erase_approvals",
    "erase_chunks",
    "erase_processes",
    "erase_reset_hold",
    "erase_history",
    "erase_outbox",
    "erase_addresses",
    "erase_aliases",
    "erase_channels",
    "erase",
    "erase_words",
)


class Filters(msgspec.Struct, frozen=True, kw_only=True):
    """Which sessions a list shows. `trashed` is 0 for those outside the trash, 1 for those in it, 2 for both."""

    source: str | None = None
    channel: str | None = None
    model: str | None = None
    state: State | None = None
    pinned: int | None = None
    trashed: int = 0
    sides: int = 0


EVERYTHING = Filters(trashed=2, sides=1)
SAMPLE, COMMON = 200, 20
"""A filter that fits fewer than one in twenty of the newest two hundred sessions is rare."""


class Page(msgspec.Struct, frozen=True):
    sessions: list[Session]
    next: str | None


class Found(msgspec.Struct, frozen=True):
    """What a reference led to, and how many others it would have fitted as well."""

    session: Session
    by: str
    others: int = 0


class Prunable(msgspec.Struct, frozen=True):
    id: str
    title: str | None
    trashed_at: int
    message_count: int
    preview: str


def create(tx: Transaction, session_id: str, opened: SessionOpened, *, at: int) -> tuple[Session, bool]:
    """The session of this id, and whether it is new. Creating one that exists returns it unchanged."""
    if tx.one("sessions.create", id=session_id, hash=GENESIS, source=opened.source, at=at) is None:
        return get(tx, session_id), False
    return log.append_unheld(tx, session_id, [opened], at=at), True


def create_for_channel(tx: Transaction, session_id: str, opened: SessionOpened, *, at: int) -> tuple[Session, bool]:
    """The current session of the channel; without one, or with one in the trash, a new session becomes it."""
    assert opened.channel is not None, "a session for a channel names it"
    current = aliases.current(tx, opened.channel)
    if current is not None and (session := get(tx, current)).summary.trashed_at is None:
        return session, False
    session, new = create(tx, session_id, opened, at=at)
    aliases.point(tx, opened.channel, session_id, at=at)
    return session, new


def get(tx: Transaction, session_id: str) -> Session:
    """Raises NotFound."""
    row = tx.one("sessions.get", id=session_id)
    if row is None:
        raise NotFound(f"there is no session {session_id}")
    return log.as_session(row)


def resolve(tx: Transaction, ref: str, *, trashed: bool = False) -> Found:
    """The session that a reference means: an id, an alias, an exact title or the beginning of an id.

    A title that several sessions have means the one used last, and `others` says so. Sessions in the
    trash are found only by their whole id or alias, and only if `trashed` is given. Raises NotFound,
    or Ambiguous with the candidates for a beginning that fits several.
    """
    if not _is_text(ref):
        raise NotFound(f"no session has the id, alias or title {ref!r}")
    row = tx.one("sessions.get", id=ref)
    alias = aliases.find(tx, ref) if row is None else None
    if row is None and alias is None:
        return _resolve_loosely(tx, ref)
    session = log.as_session(row) if row is not None else get(tx, cast("str", alias))
    if session.summary.trashed_at is not None and not trashed:
        raise NotFound(f"session {session.id} is in the trash; 'holdfast sessions restore {session.id}' brings it back")
    return Found(session, "id" if row is not None else "alias")


def _is_text(ref: str) -> bool:
    """Whether every database could hold it: a command line may bring bytes that are no letters."""
    return "\0" not in ref and ref.encode("utf-8", "replace").decode("utf-8") == ref


def _resolve_loosely(tx: Transaction, ref: str) -> Found:
    titled = tx.one("sessions.by_title", title=title_line(ref))
    if titled is not None:
        return Found(get(tx, cast("str", titled[0])), "title", cast("int", titled[1]) - 1)
    prefix = ref if ref.startswith(SESSION) else SESSION + ref
    if len(ref) < SHORTEST_PREFIX or not prefix.isascii():
        raise NotFound(
            f"no session has the id, alias or title {ref!r} (the beginning of an id needs {SHORTEST_PREFIX} characters)"
        )
    fitting = refs.beginning_with(tx, "sessions.by_prefix", prefix)
    if not fitting:
        raise NotFound(f"no session has the id, alias or title {ref!r}, and no id begins with it")
    return Found(get(tx, refs.only(ref, fitting, "sessions")), "prefix")


def list_page(
    tx: Transaction, filters: Filters, *, limit: int, cursor: str | None = None, rare: bool | None = None
) -> Page:
    """A page of sessions, newest activity first. A session used between two pages moves to the front.

    Whether few sessions fit is found out unless it is said (`rare`): it decides which way is quicker, not what is found. Raises Invalid for a cursor of another store or another list, and for a page of no length.
    """
    if limit < 1:
        raise Invalid(f"a page has at least one session, not {limit}")
    mark = _mark(tx, filters)
    before_at, before_id = _place(cursor, mark) if cursor else (LAST, "")
    rare = _is_rare(tx, filters) if rare is None else rare
    query = "sessions.list_rare" if rare else "sessions.list"
    rows = tx.all(query, limit=limit + 1, before_at=before_at, before_id=before_id, **msgspec.structs.asdict(filters))
    sessions = [log.as_session(row) for row in rows[:limit]]
    more = len(rows) > limit
    return Page(sessions, _cursor(sessions[-1], mark) if more else None)


def _is_rare(tx: Transaction, filters: Filters) -> bool:
    """Whether few of the newest sessions fit: then all are looked at in the order in which that is quickest."""
    if filters in (Filters(), EVERYTHING):
        return False
    everything = msgspec.structs.asdict(EVERYTHING)
    newest = tx.all("sessions.list", limit=SAMPLE, before_at=LAST, before_id="", **everything)
    fitting = sum(fits(log.as_session(row), filters) for row in newest)
    return fitting * COMMON < len(newest)


def fits(session: Session, filters: Filters) -> bool:
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
    )


def in_hand(tx: Transaction, limit: int) -> list[Session]:
    """Open sessions that a worker holds or has open, or whose turn is open: however many others there are."""
    return [log.as_session(row) for row in tx.all("sessions.in_hand", limit=limit)]


def _mark(tx: Transaction, filters: Filters) -> str:
    """What a cursor must have been made for."""
    return hashlib.sha256(meta.store_id(tx).encode() + msgspec.json.encode(filters)).hexdigest()[:12]


def _cursor(session: Session, mark: str) -> str:
    place = f"{mark} {session.summary.updated_at} {session.id}"
    return base64.urlsafe_b64encode(place.encode()).decode().rstrip("=")


def _place(cursor: str, mark: str) -> tuple[int, str]:
    try:
        text = base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)).decode("ascii")
        theirs, at, session_id = text.split(" ")
        place = int(at), session_id
    except (binascii.Error, ValueError) as e:
        raise Invalid("this is not a cursor of ours; start again without one") from e
    if not 0 <= place[0] <= LAST:
        raise Invalid("this is not a cursor of ours; start again without one")
    if theirs != mark:
        raise Invalid("this cursor is of another store or another list; start again without one")
    return place


def rename(tx: Transaction, session_id: str, title: str, *, at: int) -> Session:
    """Give the session a title: one line, without control characters, not empty."""
    return log.annotate(tx, session_id, Titled(title=clean_title(title)), at=at)


def clean_title(title: str) -> str:
    """The title as it will be stored. Raises Invalid if nothing of it can be seen."""
    cleaned = title_line(title)
    if not cleaned:
        raise Invalid("a title needs at least one visible character")
    return cleaned


def pin(tx: Transaction, session_id: str, *, pinned: bool, at: int) -> Session:
    """Mark the session as one to keep, or no longer. Doing it twice adds nothing."""
    session = get(tx, session_id)
    if bool(session.summary.pinned) == pinned:
        return session
    return log.annotate(tx, session_id, Pinned() if pinned else Unpinned(), at=at)


def end(tx: Transaction, session_id: str, reason: EndReason, *, at: int, detail: str = "") -> Session:
    """End a session that nobody holds; the first reason stands. Raises Busy if somebody does."""
    session = get(tx, session_id)
    if session.summary.ended_at is not None:
        return session
    loose = _left_open(tx, session) if session.summary.open_turn is not None else []
    return log.append_unheld(tx, session_id, [*loose, Ended(reason=reason, detail=detail)], at=at)


def _left_open(tx: Transaction, session: Session) -> list[Event]:
    """What closes a turn that nobody will go on with; half-said text comes into the log with it."""
    draft = log.draft(tx, session.id)
    log.drop_draft(tx, session.id)
    words = (
        [half_said(draft.turn_id, draft.body)]
        if draft is not None and draft.turn_id == session.summary.open_turn
        else []
    )
    return [*words, *loose_ends(log.read(tx, session.id))]


def reopen(tx: Transaction, session_id: str, *, at: int, reason: str = "") -> Session:
    """Take an ended session up again, with all its messages. Raises Busy if somebody holds it."""
    session = get(tx, session_id)
    if session.summary.ended_at is None and session.summary.quarantined is None:
        return session
    return log.append_unheld(tx, session_id, [Reopened(reason=reason, by_person=True)], at=at)


def fork(
    tx: Transaction,
    parent_id: str,
    new_id: str,
    *,
    at: int,
    at_seq: int | None = None,
    source: Source | None = None,
    channel: str | None = None,
) -> Session:
    """A new session with the parent's log up to `at_seq` (by default all of it), hashes included.

    Tool calls that were open at that point are closed as unknown in the fork: it can be continued at once.
    Raises Corrupt if what it would share is damaged; a fork before the damage is sound.
    """
    parent = get(tx, parent_id)
    upto = parent.seq if at_seq is None else at_seq
    if not 1 <= upto <= parent.seq:
        raise Invalid(f"session {parent_id} has events 1 to {parent.seq}; it cannot be forked at {upto}")
    shared = log.read_proved(tx, parent_id, upto)
    if tx.one("sessions.create", id=new_id, hash=GENESIS, source=parent.summary.source, at=at) is None:
        raise Invalid(f"session {new_id} exists already")
    tx.run("sessions.copy_events", id=new_id, parent=parent_id, upto=upto)
    log.settle(tx, log.Head(new_id, upto, shared[-1].hash), Summary(), summarise(shared))
    fact = Forked(parent_id=parent_id, at_seq=upto, at_hash=shared[-1].hash, source=source, channel=channel)
    forked: list[Event] = [fact]
    return log.append_unheld(tx, new_id, [*forked, *loose_ends(shared)], at=at)


def trash(tx: Transaction, session_id: str, *, at: int, reason: str = "") -> Session:
    """Put the session into the trash, from where it can be restored. Raises Busy while somebody holds it."""
    session = get(tx, session_id)
    if session.summary.trashed_at is not None:
        return session
    return log.append_unheld(tx, session_id, [Trashed(reason=reason)], at=at)


def restore(tx: Transaction, session_id: str, *, at: int) -> Session:
    """Take the session out of the trash."""
    session = get(tx, session_id)
    if session.summary.trashed_at is None:
        return session
    return log.annotate(tx, session_id, Restored(), at=at)


def prunable(tx: Transaction, *, before: int) -> list[Prunable]:
    """What `prune` would remove: sessions in the trash since before then, not pinned and held by nobody."""
    return [Prunable(*row) for row in tx.all("sessions.prunable", before=before)]  # type: ignore[arg-type] # the schema checks the types


def prune(tx: Transaction, session_id: str, *, before: int) -> bool:
    """Remove a session for good, with all that belongs to it; False if it is not, or no longer, prunable."""
    if tx.one("sessions.is_prunable", id=session_id, before=before) is None:
        return False
    for query in ERASING:
        tx.run(f"sessions.{query}", id=session_id)
    return True


class Count(msgspec.Struct, frozen=True):
    """How many sessions are alike: of one source, ended in one way or open in one way, and of one worker."""

    source: str
    end_reason: str | None
    is_quarantined: int
    is_in_turn: int
    worker_id: str | None
    count: int


def stats(tx: Transaction) -> list[Count]:
    """All sessions outside the trash, counted; `engine.census` says what that means."""
    return [Count(*row) for row in tx.all("sessions.stats")]  # type: ignore[arg-type] # the schema checks the types


def rebuild(tx: Transaction, session_id: str) -> Session:
    """Fold the session's summary from its log anew."""
    session = get(tx, session_id)
    summary = summarise(log.read_whole(tx, session))
    log.settle(tx, log.Head(session_id, session.seq, session.hash), Summary(), summary)
    return get(tx, session_id)
