"""The log of a session: append with a fence, read back, prove."""

from collections.abc import Sequence
from typing import cast

import msgspec

from holdfast.model.entry import GENESIS, Entry, decode, encode, link
from holdfast.model.errors import Corrupt, Invalid, LeaseLost, NotFound
from holdfast.model.event import ANNOTATIONS, KIND_OF, Event
from holdfast.model.session import Session, Summary, fold
from holdfast.store.database import Row, Transaction, Value
from holdfast.store.leases import Lease, busy

TO_THE_END = 2**62
SUMMARY_FROM = 5
"""The columns before this one place a session in the store; those from it on are its summary, in the fields' order.
The last field stands behind the owner, because a later migration added it."""
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
)
"""Fields that seldom change; an append that leaves them alone spares their columns and indexes the write."""
SUMMARY_FIELDS = len(msgspec.structs.fields(Summary))


class Head(msgspec.Struct, frozen=True):
    """The number and hash of a log's last event."""

    session_id: str
    seq: int
    hash: str


class Draft(msgspec.Struct, frozen=True):
    """What had been streamed of a reply when it was last kept."""

    turn_id: str
    body: str
    at: int


def as_session(row: Row) -> Session:
    """A row of the session table, with its worker's heartbeat behind it if the query joined that."""
    end = SUMMARY_FROM + SUMMARY_FIELDS - 1
    owner, active_at = row[end : end + 2]
    heartbeat = row[end + 2] if len(row) > end + 2 else None
    place = cast("tuple[str, int, str, str | None, int]", row[:SUMMARY_FROM])
    fields = [*row[SUMMARY_FROM:end], active_at]
    summary = Summary(*fields)  # type: ignore[arg-type] # the schema checks the types
    return Session(*place, summary, cast("str | None", owner), cast("int | None", heartbeat))


def append(tx: Transaction, lease: Lease, events: Sequence[Event], *, at: int) -> Session:
    """Add the events to the session's log, all or none, and return the session as it then is.

    Raises LeaseLost, having written nothing, once the lease has changed hands.
    """
    head = tx.one("log.held", session=lease.session_id, token=lease.token, worker=lease.worker_id)
    if head is None:
        raise LeaseLost(f"{lease.worker_id} no longer holds session {lease.session_id}; nothing was written")
    return _extend(tx, head, events, at)


def append_unheld(tx: Transaction, session_id: str, events: Sequence[Event], *, at: int) -> Session:
    """As append, for a session that nobody holds. Raises Busy if somebody does."""
    head = tx.one("log.unheld", session=session_id)
    if head is None:
        raise busy(tx, session_id)
    return _extend(tx, head, events, at)


def annotate(tx: Transaction, session_id: str, event: Event, *, at: int) -> Session:
    """Add a fact that is no part of a turn, whoever holds the session."""
    if not isinstance(event, ANNOTATIONS):
        raise Invalid(f"a {KIND_OF[type(event)]} event needs the lease of its session")
    head = tx.one("log.beside", session=session_id)
    if head is None:
        raise NotFound(f"there is no session {session_id}")
    return _extend(tx, head, [event], at)


def _extend(tx: Transaction, head: Row, events: Sequence[Event], at: int) -> Session:
    """Write the events behind the head, which nobody else can move before the end of the transaction."""
    session = as_session(head)
    before = summary = session.summary
    seq, hash_ = session.seq, session.hash
    rows: list[dict[str, Value]] = []
    for event in events:
        kind, body = KIND_OF[type(event)], encode(event)
        seq, hash_ = seq + 1, link(hash_, kind, at, body)
        summary = fold(summary, event, at)
        rows.append({"session": session.id, "seq": seq, "kind": kind, "at": at, "hash": hash_, "body": body})
    tx.many("log.add", rows)
    settle(tx, Head(session.id, seq, hash_), before, summary)
    tx.notify(session.id)
    return msgspec.structs.replace(session, seq=seq, hash=hash_, summary=summary)


def settle(tx: Transaction, head: Head, before: Summary, after: Summary) -> None:
    """Write the head and the summary into the session's row."""
    fields = msgspec.structs.asdict(after)
    if all(getattr(before, name) == fields[name] for name in INDEXED):
        for name in INDEXED:
            del fields[name]
        tx.run("log.settle_counts", session=head.session_id, seq=head.seq, hash=head.hash, **fields)
    else:
        tx.run("log.settle", session=head.session_id, seq=head.seq, hash=head.hash, **fields)


def read(tx: Transaction, session_id: str, *, first: int = 1, last: int = TO_THE_END) -> list[Entry]:
    """The events from `first` to `last`, in order."""
    return [
        Entry(seq, at, decode(kind, body), hash_) for seq, kind, at, hash_, body in _rows(tx, session_id, first, last)
    ]


def _rows(tx: Transaction, session_id: str, first: int, last: int) -> list[tuple[int, str, int, str, str]]:
    try:
        rows = tx.all("log.range", session=session_id, first=first, last=last)
    except UnicodeDecodeError as e:
        seq = _first_unreadable(tx, session_id, first)
        raise Corrupt(
            f"session {session_id}: event {seq} is not what was written; it holds bytes that are no text"
        ) from e
    return cast("list[tuple[int, str, int, str, str]]", rows)


def _first_unreadable(tx: Transaction, session_id: str, first: int) -> int:
    """The number of the damaged event, known to be there: one row at a time until it shows."""
    seq = max(1, first)
    while True:
        try:
            tx.all("log.range", session=session_id, first=seq, last=seq)
        except UnicodeDecodeError:
            return seq
        seq += 1


def tail(tx: Transaction, session: Session, count: int) -> list[Entry]:
    """The newest events, oldest first."""
    return read(tx, session.id, first=max(1, session.seq - count + 1))


def read_whole(tx: Transaction, session: Session) -> list[Entry]:
    """Every event of the session, proved complete and unchanged by count and hash.

    Raises Corrupt and names the place otherwise: a history that lacks something is never passed off as whole.
    """
    entries = read_proved(tx, session.id)
    if (len(entries), entries[-1].hash if entries else GENESIS) != (session.seq, session.hash):
        raise Corrupt(
            f"session {session.id}: {len(entries)} events are stored, its head says {session.seq} with another hash"
        )
    return entries


def read_page(tx: Transaction, session: Session, *, after: int, limit: int) -> list[Entry]:
    """At most so many events behind a number, each proved by its hash and none missing between them. Raises Corrupt."""
    last = min(session.seq, after + limit)
    return [] if after >= last else read_proved(tx, session.id, last, first=after + 1)


def read_proved(tx: Transaction, session_id: str, last: int = TO_THE_END, *, first: int = 1) -> list[Entry]:
    """The events from `first` to `last`, each proved by its hash and none missing between them. Raises Corrupt."""
    entries: list[Entry] = []
    previous, rows = GENESIS, _rows(tx, session_id, max(1, first - 1), last)
    if first > 1 and rows and rows[0][0] == first - 1:
        previous, rows = rows[0][3], rows[1:]
    for seq, kind, at, hash_, body in rows:
        if seq != len(entries) + first:
            missing = len(entries) + first
            raise Corrupt(f"session {session_id}: event {missing} is missing; the next one stored is {seq}")
        if link(previous, kind, at, body) != hash_:
            raise Corrupt(f"session {session_id}: event {seq} ({kind}) is not what was written; its hash does not fit")
        entries.append(Entry(seq, at, decode(kind, body), hash_))
        previous = hash_
    if first + len(entries) <= last < TO_THE_END:
        raise Corrupt(f"session {session_id}: event {first + len(entries)} is missing, and all that came after it")
    return entries


def keep_draft(tx: Transaction, lease: Lease, draft: Draft) -> None:
    """Keep the newest text of a reply that is still streaming. Raises LeaseLost as append does."""
    params: dict[str, Value] = {"session": lease.session_id, "token": lease.token, "worker": lease.worker_id}
    if tx.one("log.put_draft", turn=draft.turn_id, body=draft.body, at=draft.at, **params) is None:
        raise LeaseLost(f"{lease.worker_id} no longer holds session {lease.session_id}; the draft was not kept")
    tx.notify(lease.session_id)


def draft(tx: Transaction, session_id: str) -> Draft | None:
    row = tx.one("log.draft", session=session_id)
    return None if row is None else Draft(*row)  # type: ignore[arg-type] # the schema checks the types


def drop_draft(tx: Transaction, session_id: str) -> None:
    """Forget the draft. Call it in the transaction that commits its words."""
    tx.run("log.drop_draft", session=session_id)
