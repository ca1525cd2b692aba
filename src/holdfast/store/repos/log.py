"""The log of a session: fenced append, read, verify."""

from collections.abc import Sequence
from operator import attrgetter
from typing import Self, cast

import msgspec

from holdfast.model.entry import GENESIS, Entry, decode, encode, link
from holdfast.model.errors import Corrupt, Invalid, LeaseLost, NotFound
from holdfast.model.event import ANNOTATIONS, KIND_OF, Event
from holdfast.model.session import CHILD, Session, SessionSummary, fold
from holdfast.store.database import Row, Transaction, Value
from holdfast.store.repos import delegations, goals
from holdfast.store.repos.leases import Lease, make_busy_error

TO_THE_END = 2**62
SUMMARY_FROM = 5
"""The columns from this one on are the summary, in the order of its fields. The last fields come after the owner, because
later migrations added them."""
LATER_FIELDS = 4
INDEXED = (
    "title",
    "open_turn",
    "ended_at",
    "end_reason",
    "trashed_at",
    "channel",
    "model",
    "source",
    "parent_id",
    "pinned",
    "quarantined",
    "created_at",
    "side_of",
    "mode",
    "goal",
)
"""Fields that rarely change; an append that does not change them does not write their columns and indexes."""
COUNTS = tuple(name for name in SessionSummary.__struct_fields__ if name not in INDEXED)
SUMMARY_FIELDS = len(SessionSummary.__struct_fields__)
_indexed, _counts = attrgetter(*INDEXED), attrgetter(*COUNTS)


EventRow = tuple[int, str, int, str, str]
"""A stored event: number, kind, time, hash and body."""


class LogHead(msgspec.Struct, frozen=True):
    """The number and hash of a log's last event."""

    session_id: str
    seq: int
    hash: str

    @classmethod
    def of(cls, session: Session) -> Self:
        return cls(session.id, session.seq, session.hash)


class ReplyDraft(msgspec.Struct, frozen=True):
    """The text of a streaming reply when it was last saved."""

    turn_id: str
    body: str
    at: int
    notice: str = ""
    """What the reply waits for, while the provider is retried."""
    called: str = ""
    """The model that is asked, as `provider:name`."""


class PlacedEvent(msgspec.Struct, frozen=True):
    """An event with its position in the order of all commits."""

    position: int
    session_id: str
    seq: int
    kind: str
    at: int
    body: str


class SessionAtTurnEnd(msgspec.Struct, frozen=True):
    """A locked session, and what the end of a turn has to clean up or to continue with."""

    session: Session
    has_draft: bool
    has_questions: bool
    """Whether an approval question is open."""
    has_reply_addresses: bool
    """Whether any turn of the session has a reply address."""
    has_input: bool
    """Whether the queue holds messages or stop requests."""


def session_from_row(row: Row) -> Session:
    """The session of a row, which may end with the heartbeat of its worker."""
    end = SUMMARY_FROM + SUMMARY_FIELDS - LATER_FIELDS
    owner, *later = row[end : end + 1 + LATER_FIELDS]
    heartbeat = row[end + 1 + LATER_FIELDS] if len(row) > end + 1 + LATER_FIELDS else None
    place = cast("tuple[str, int, str, str | None, int]", row[:SUMMARY_FROM])
    fields = [*row[SUMMARY_FROM:end], *later]
    summary = SessionSummary(*fields)  # type: ignore[arg-type] # the schema checks the types
    return Session(*place, summary, cast("str | None", owner), cast("int | None", heartbeat))


def append(tx: Transaction, lease: Lease, events: Sequence[Event], *, at: int) -> Session:
    """Append the events to the session's log, all or none; returns the session after that.

    Raises LeaseLost and writes nothing if the lease was lost.
    """
    return extend(tx, lock_held(tx, lease), events, at=at)


def lock_held(tx: Transaction, lease: Lease) -> Session:
    """Lock the session for `extend`. Raises LeaseLost."""
    return session_from_row(_lock(tx, "log.lock_held", lease))


def lock_at_turn_end(tx: Transaction, lease: Lease) -> SessionAtTurnEnd:
    """Lock the session for `extend`, and find out what the end of a turn has to clean up. Raises LeaseLost."""
    row = _lock(tx, "log.lock_held_at_turn_end", lease)
    return SessionAtTurnEnd(session_from_row(row[:-4]), *map(bool, row[-4:]))


def _lock(tx: Transaction, query: str, lease: Lease) -> Row:
    row = tx.one(query, session=lease.session_id, token=lease.token, worker=lease.worker_id)
    if row is None:
        raise LeaseLost(f"{lease.worker_id} no longer holds session {lease.session_id}; nothing was written")
    return row


def require_lease(tx: Transaction, lease: Lease) -> None:
    """Raise LeaseLost if the lease was lost."""
    _lock(tx, "log.lock_held", lease)


def append_unheld(tx: Transaction, session_id: str, events: Sequence[Event], *, at: int) -> Session:
    """Like `append`, for a session without a lease. Raises Busy if a worker holds it."""
    return extend(tx, lock_unheld(tx, session_id), events, at=at)


def lock_unheld(tx: Transaction, session_id: str) -> Session:
    """Lock the session, which has no lease, for `extend`. Raises Busy if a worker holds it."""
    head = tx.one("log.lock_unheld", session=session_id)
    if head is None:
        raise make_busy_error(tx, session_id)
    return session_from_row(head)


def annotate(tx: Transaction, session_id: str, event: Event, *, at: int) -> Session:
    """Append an event that is not part of a turn, regardless of the lease."""
    if not isinstance(event, ANNOTATIONS):
        raise Invalid(f"a {KIND_OF[type(event)]} event needs the lease of its session")
    head = tx.one("log.lock_any", session=session_id)
    if head is None:
        raise NotFound(f"there is no session {session_id}")
    return extend(tx, session_from_row(head), [event], at=at)


def extend(tx: Transaction, session: Session, events: Sequence[Event], *, at: int) -> Session:
    """Append the events to a session that this transaction has locked, or has taken, and not changed since."""
    if not events:
        tx.notify(session.id)
        return session
    before = summary = session.summary
    seq, hash_ = session.seq, session.hash
    rows: list[dict[str, Value]] = []
    for event in events:
        kind, body = KIND_OF[type(event)], encode(event)
        seq, hash_ = seq + 1, link(hash_, kind, at, body)
        summary = fold(summary, event, at)
        rows.append({"session": session.id, "seq": seq, "kind": kind, "at": at, "hash": hash_, "body": body})
    tx.many("log.add", rows)
    write_head(tx, LogHead(session.id, seq, hash_), before, summary)
    tx.notify(session.id)
    if summary.source == CHILD or not delegations.PARENT_EVENTS.isdisjoint(map(type, events)):
        for other, note in delegations.after_append(tx, session.id, summary, events, at=at):
            annotate(tx, other, note, at=at)
    if before.goal or summary.goal:
        goals.after_append(tx, session.id, events, at=at)
    return msgspec.structs.replace(session, seq=seq, hash=hash_, summary=summary)


def write_head(tx: Transaction, head: LogHead, before: SessionSummary, after: SessionSummary) -> None:
    """Write the head and the summary to the session's row."""
    place: dict[str, Value] = {"session": head.session_id, "seq": head.seq, "hash": head.hash}
    if _indexed(before) == _indexed(after):
        place.update(zip(COUNTS, _counts(after), strict=True))
        tx.many("log.update_counts", (place,))
    else:
        tx.run("log.update_head", **place, **msgspec.structs.asdict(after))


def read(tx: Transaction, session_id: str, *, first: int = 1, last: int = TO_THE_END) -> list[Entry]:
    """The events from `first` to `last`, in order."""
    return [
        Entry(seq, at, decode(kind, body), hash_) for seq, kind, at, hash_, body in _rows(tx, session_id, first, last)
    ]


def _rows(tx: Transaction, session_id: str, first: int, last: int) -> list[EventRow]:
    try:
        rows = tx.all("log.list_range", session=session_id, first=first, last=last)
    except UnicodeDecodeError as e:
        seq = _first_unreadable(tx, session_id, first)
        raise Corrupt(f"session {session_id}: event {seq} was changed: it contains bytes that are not text") from e
    return cast("list[EventRow]", rows)


def _first_unreadable(tx: Transaction, session_id: str, first: int) -> int:
    """The number of the damaged event, which exists: reads one row at a time."""
    seq = max(1, first)
    while True:
        try:
            tx.all("log.list_range", session=session_id, first=seq, last=seq)
        except UnicodeDecodeError:
            return seq
        seq += 1


def read_tail(tx: Transaction, session: Session, count: int) -> list[Entry]:
    """The newest events, oldest first."""
    return read(tx, session.id, first=max(1, session.seq - count + 1))


def read_complete(tx: Transaction, session: Session) -> list[Entry]:
    """Every event of the session, verified as complete and unchanged by count and hash.

    Raises Corrupt with the position otherwise: an incomplete history is never returned.
    """
    entries = read_verified(tx, session.id)
    if (len(entries), entries[-1].hash if entries else GENESIS) != (session.seq, session.hash):
        raise Corrupt(
            f"session {session.id}: {len(entries)} events are stored, but its row names event {session.seq} with another hash"
        )
    return entries


def read_last(tx: Transaction, session: Session) -> Entry:
    """The last event. Raises Corrupt if it is not the one that the session's row names."""
    entries = read(tx, session.id, first=session.seq, last=session.seq)
    check_head(session, entries)
    return entries[-1]


def check_head(session: Session, tail: Sequence[Entry]) -> None:
    """Raise Corrupt if the last of these entries is not the last event that the session's row names."""
    if not tail or (tail[-1].seq, tail[-1].hash) != (session.seq, session.hash):
        raise Corrupt(f"session {session.id}: event {session.seq}, its last one, is missing or was changed")


def read_page(tx: Transaction, session: Session, *, after: int, limit: int) -> list[Entry]:
    """At most `limit` events after a number, verified by hash and without gaps. Raises Corrupt."""
    last = min(session.seq, after + limit)
    return [] if after >= last else read_verified(tx, session.id, last, first=after + 1)


def read_verified(tx: Transaction, session_id: str, last: int = TO_THE_END, *, first: int = 1) -> list[Entry]:
    """The events from `first` to `last`, verified by hash and without gaps. Raises Corrupt."""
    rows = read_verified_rows(tx, session_id, last, first=first)
    return [Entry(seq, at, decode(kind, body), hash_) for seq, kind, at, hash_, body in rows]


def read_verified_rows(
    tx: Transaction, session_id: str, last: int = TO_THE_END, *, first: int = 1, known: LogHead | None = None
) -> list[EventRow]:
    """Like `read_verified`, without decoding the bodies. Hashes up to `known`, which this process has verified before, are trusted."""
    previous, rows = GENESIS, _rows(tx, session_id, max(1, first - 1), last)
    if first > 1 and rows and rows[0][0] == first - 1:
        previous, rows = rows[0][3], rows[1:]
    trusted = 0 if known is None or known.session_id != session_id else known.seq
    for expected, (seq, kind, at, hash_, body) in enumerate(rows, first):
        if seq != expected:
            raise Corrupt(f"session {session_id}: event {expected} is missing; the next one stored is {seq}")
        if seq < trusted:
            continue
        if seq == trusted and known is not None:
            is_unchanged = hash_ == known.hash
        else:
            is_unchanged = link(previous, kind, at, body) == hash_
        if not is_unchanged:
            raise Corrupt(f"session {session_id}: event {seq} ({kind}) was changed: its hash does not match")
        previous = hash_
    if first + len(rows) <= last < TO_THE_END:
        raise Corrupt(f"session {session_id}: event {first + len(rows)} is missing, as are all later ones")
    return rows


def save_draft(tx: Transaction, lease: Lease, draft: ReplyDraft) -> None:
    """Save the newest text of a streaming reply. Raises LeaseLost like `append`."""
    params: dict[str, Value] = {"session": lease.session_id, "token": lease.token, "worker": lease.worker_id}
    if tx.one("log.put_draft", **msgspec.structs.asdict(draft), **params) is None:
        raise LeaseLost(f"{lease.worker_id} no longer holds session {lease.session_id}; the draft was not saved")
    tx.notify(lease.session_id)


def get_draft(tx: Transaction, session_id: str) -> ReplyDraft | None:
    row = tx.one("log.get_draft", session=session_id)
    return None if row is None else ReplyDraft(*row)  # type: ignore[arg-type] # the schema checks the types


def delete_draft(tx: Transaction, session_id: str) -> None:
    """Delete the draft. Call it in the transaction that commits its text."""
    tx.run("log.delete_draft", session=session_id)


def get_last_position(tx: Transaction) -> int:
    """The newest position; 0 in an empty store."""
    row = tx.one("log.get_last_position")
    return cast("int", row[0] or 0) if row else 0


def list_after_position(tx: Transaction, after: int, *, upto: int, limit: int) -> list[PlacedEvent]:
    """Events of all sessions in the order of their commits."""
    rows = tx.all("log.list_after_position", after=after, upto=upto, limit=limit)
    return [PlacedEvent(*row) for row in rows]  # type: ignore[arg-type] # the schema checks the types


def get_last_copied(tx: Transaction, session_id: str) -> int:
    """The last event that the session has from another session or from an import; 0 if it has none."""
    row = tx.one("log.get_last_copied", session=session_id)
    return 0 if row is None else cast("int", row[0])
