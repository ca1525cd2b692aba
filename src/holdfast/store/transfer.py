"""Whole logs into and out of the store, row by row, with the hashes they were written with."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Literal, cast

import msgspec

from holdfast.model.entry import GENESIS, link
from holdfast.model.errors import Conflict, Corrupt
from holdfast.model.event import Imported
from holdfast.model.session import Session, Summary
from holdfast.store import aliases, leases, log, sessions
from holdfast.store.database import Transaction, Value

Outcome = Literal["new", "same", "extended", "behind"]
"""What became of an imported log: `behind` means that the store already has all of it and more."""


class Line(msgspec.Struct, frozen=True):
    """One event as it is stored."""

    seq: int
    kind: str
    at: int
    hash: str
    body: str


class Proved(msgspec.Struct, frozen=True):
    """A log that lies elsewhere and has been checked from end to end. It is read again rather than kept in memory."""

    seq: int
    hash: str
    summary: Summary
    lines: Callable[[], Iterator[Line]]
    """All its lines from the first, checked again as they are read."""

    def behind(self, seq: int) -> Iterator[Line]:
        return (line for line in self.lines() if line.seq > seq)


class Merged(msgspec.Struct, frozen=True):
    outcome: Outcome
    session: Session
    added: int
    """How many events were written."""


def lines(tx: Transaction, session_id: str, *, first: int, last: int) -> list[Line]:
    """Events as they are stored, from `first` to `last`. Nothing is checked."""
    rows = tx.all("log.range", session=session_id, first=first, last=last)
    return [Line(*row) for row in rows]  # type: ignore[arg-type] # the schema checks the types


def check(previous: Line | None, line: Line) -> None:
    """Raise Corrupt unless the line follows the one before it."""
    expected = 1 if previous is None else previous.seq + 1
    if line.seq != expected:
        raise Corrupt(f"event {expected} is missing; the next one is {line.seq}")
    before = GENESIS if previous is None else previous.hash
    if not (line.kind + line.body).isascii() or link(before, line.kind, line.at, line.body) != line.hash:
        raise Corrupt(f"event {line.seq} ({line.kind}) is not what was written; its hash does not fit")


def merge(tx: Transaction, session_id: str, proved: Proved, *, at: int) -> Merged:
    """Bring a checked log under its own id into the store. The same log again changes nothing.

    Raises Conflict, having written nothing, if the store has another history under this id, and Busy if the
    session would grow while somebody holds it.
    """
    if (other := aliases.find(tx, session_id)) is not None:
        raise Conflict(f"{session_id} is another name of session {other} here; nothing was imported")
    if tx.one("sessions.get", id=session_id) is None:
        _insert(tx, session_id, proved, at)
        return Merged("new", sessions.get(tx, session_id), proved.seq)
    stored = sessions.get(tx, session_id)
    _refuse_diverged(tx, stored, proved)
    if stored.seq >= proved.seq:
        return Merged("same" if stored.seq == proved.seq else "behind", stored, 0)
    if tx.one("transfer.extend", session=session_id, had=stored.seq, seq=proved.seq, hash=proved.hash) is None:
        raise leases.busy(tx, session_id)
    _add(tx, session_id, proved.behind(stored.seq))
    log.settle(tx, log.Head(session_id, proved.seq, proved.hash), stored.summary, proved.summary)
    return Merged("extended", sessions.get(tx, session_id), proved.seq - stored.seq)


def add_as(tx: Transaction, new_id: str, proved: Proved, imported: Imported, *, at: int) -> Merged:
    """Bring a checked log into the store as a session of its own; a last event says where it came from."""
    _insert(tx, new_id, proved, at)
    session = log.append_unheld(tx, new_id, [imported], at=at)
    return Merged("new", session, session.seq)


def begin(tx: Transaction, session_id: str, log_lines: Sequence[Line], summary: Summary, *, at: int) -> None:
    """Add a session whose log begins so; the rest comes with `grow`. Raises Conflict if there is one of this id."""
    if tx.one("sessions.get", id=session_id) is not None:
        raise Conflict(f"session {session_id} is here already")
    head = log_lines[-1]
    _insert(tx, session_id, Proved(head.seq, head.hash, summary, lambda: iter(log_lines)), at)


def grow(tx: Transaction, session_id: str, log_lines: Sequence[Line], summary: Summary) -> None:
    """Add lines that follow the head of a session that nobody holds. Raises Busy, or Conflict if they do not follow."""
    stored = sessions.get(tx, session_id)
    had, head = log_lines[0].seq - 1, log_lines[-1]
    if stored.seq != had:
        raise Conflict(f"session {session_id} was changed while it was being imported; import it again")
    if tx.one("transfer.extend", session=session_id, had=had, seq=head.seq, hash=head.hash) is None:
        raise leases.busy(tx, session_id)
    _add(tx, session_id, log_lines)
    log.settle(tx, log.Head(session_id, head.seq, head.hash), stored.summary, summary)


def marks(tx: Transaction, session_id: str) -> list[Line]:
    """Where imports into this session ended: its `imported` events."""
    rows = tx.all("transfer.of_kind", session=session_id, kind="imported")
    return [Line(*row) for row in rows]  # type: ignore[arg-type] # the schema checks the types


def first_woven_behind(tx: Transaction, session_id: str, seq: int) -> int | None:
    """The number of the first event behind a place with which an import can go on."""
    row = tx.one("transfer.first_woven_behind", session=session_id, seq=seq)
    return None if row is None else cast("int | None", row[0])


def hash_at(tx: Transaction, session_id: str, seq: int) -> str:
    """The hash of an event that is there; before the first one, that of nothing."""
    row = tx.one("transfer.hash_at", session=session_id, seq=seq)
    return GENESIS if row is None else cast("str", row[0])


def kinds_behind(tx: Transaction, session_id: str, seq: int) -> set[str]:
    """Which kinds of events a log has behind a place."""
    return {cast("str", row[0]) for row in tx.all("transfer.kinds_behind", session=session_id, seq=seq)}


def _refuse_diverged(tx: Transaction, stored: Session, proved: Proved) -> None:
    """A hash stands for all before it, so one comparison tells whether one log begins with the other."""
    shared = min(stored.seq, proved.seq)
    row = tx.one("transfer.hash_at", session=stored.id, seq=shared)
    if row is not None and row[0] == next(proved.behind(shared - 1)).hash:
        return
    ours = [cast("str", row[0]) for row in tx.all("transfer.hashes", session=stored.id)]
    parts = next(
        (n for n, (mine, line) in enumerate(zip(ours, proved.lines(), strict=False), 1) if mine != line.hash), 1
    )
    raise Conflict(
        f"session {stored.id} has another history here: it differs from event {parts} on. "
        "Nothing was imported; --as-new keeps both"
    )


def _insert(tx: Transaction, session_id: str, proved: Proved, at: int) -> None:
    tx.run("sessions.create", id=session_id, hash=GENESIS, source=proved.summary.source, at=at)
    _add(tx, session_id, proved.lines())
    log.settle(tx, log.Head(session_id, proved.seq, proved.hash), Summary(), proved.summary)


def _add(tx: Transaction, session_id: str, log_lines: Iterable[Line]) -> None:
    tx.many("log.add", (_row(session_id, line) for line in log_lines))
    tx.notify(session_id)


def _row(session_id: str, line: Line) -> dict[str, Value]:
    return {"session": session_id, **msgspec.structs.asdict(line)}
