"""Imports and reads whole logs row by row, with their original hashes."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Literal, cast

import msgspec

from holdfast.model.entry import GENESIS, link
from holdfast.model.errors import Conflict, Corrupt
from holdfast.model.event import Imported
from holdfast.model.session import Session, SessionSummary
from holdfast.store.database import Transaction, Value
from holdfast.store.repos import aliases, leases, log, sessions

Outcome = Literal["new", "same", "extended", "behind"]
"""The result of an import; `behind` means that the store already has all of it and more."""


class StoredEvent(msgspec.Struct, frozen=True):
    """A row of the event table."""

    seq: int
    kind: str
    at: int
    hash: str
    body: str


class VerifiedLog(msgspec.Struct, frozen=True):
    """A verified log outside the store. It is read again when needed, not kept in memory."""

    seq: int
    hash: str
    summary: SessionSummary
    lines: Callable[[], Iterator[StoredEvent]]
    """All its lines from the first, verified again while they are read."""

    def lines_after(self, seq: int) -> Iterator[StoredEvent]:
        return (line for line in self.lines() if line.seq > seq)


class MergeResult(msgspec.Struct, frozen=True):
    outcome: Outcome
    session: Session
    added: int
    """The number of events written."""


def read_stored_events(tx: Transaction, session_id: str, *, first: int, last: int) -> list[StoredEvent]:
    """Rows from `first` to `last`, not verified."""
    rows = tx.all("log.list_range", session=session_id, first=first, last=last)
    return [StoredEvent(*row) for row in rows]  # type: ignore[arg-type] # the schema checks the types


def check_link(previous: StoredEvent | None, line: StoredEvent) -> None:
    """Raise Corrupt unless the line continues the chain of the previous one."""
    expected = 1 if previous is None else previous.seq + 1
    if line.seq != expected:
        raise Corrupt(f"event {expected} is missing; the next one is {line.seq}")
    before = GENESIS if previous is None else previous.hash
    if not (line.kind + line.body).isascii() or link(before, line.kind, line.at, line.body) != line.hash:
        raise Corrupt(f"event {line.seq} ({line.kind}) was changed: its hash does not match")


def merge(tx: Transaction, session_id: str, verified: VerifiedLog, *, at: int) -> MergeResult:
    """Import a verified log under its own id. Importing the same log again changes nothing.

    Raises Conflict if the store has another history under this id, and Busy if the session would grow while a worker
    holds it. Nothing is written then.
    """
    if (other := aliases.find(tx, session_id)) is not None:
        raise Conflict(f"{session_id} is an alias of session {other} in this store; nothing was imported")
    if tx.one("sessions.get", id=session_id) is None:
        _insert(tx, session_id, verified, at)
        return MergeResult("new", sessions.get(tx, session_id), verified.seq)
    stored = sessions.get(tx, session_id)
    _refuse_diverged(tx, stored, verified)
    if stored.seq >= verified.seq:
        return MergeResult("same" if stored.seq == verified.seq else "behind", stored, 0)
    if tx.one("log_import.extend", session=session_id, had=stored.seq, seq=verified.seq, hash=verified.hash) is None:
        raise leases.make_busy_error(tx, session_id)
    _add(tx, session_id, verified.lines_after(stored.seq))
    log.write_head(tx, log.LogHead(session_id, verified.seq, verified.hash), stored.summary, verified.summary)
    return MergeResult("extended", sessions.get(tx, session_id), verified.seq - stored.seq)


def import_as_new(tx: Transaction, new_id: str, verified: VerifiedLog, imported: Imported, *, at: int) -> MergeResult:
    """Import a verified log as a new session; a last event records where it came from."""
    _insert(tx, new_id, verified, at)
    session = log.append_unheld(tx, new_id, [imported], at=at)
    return MergeResult("new", session, session.seq)


def start_import(
    tx: Transaction, session_id: str, log_lines: Sequence[StoredEvent], summary: SessionSummary, *, at: int
) -> None:
    """Add a session with the first lines of its log; `extend_import` adds the rest. Raises Conflict if the session exists."""
    if tx.one("sessions.get", id=session_id) is not None:
        raise Conflict(f"session {session_id} already exists")
    head = log_lines[-1]
    _insert(tx, session_id, VerifiedLog(head.seq, head.hash, summary, lambda: iter(log_lines)), at)


def extend_import(tx: Transaction, session_id: str, log_lines: Sequence[StoredEvent], summary: SessionSummary) -> None:
    """Append lines to a session that no worker holds. Raises Busy, or Conflict if they do not follow its head."""
    stored = sessions.get(tx, session_id)
    had, head = log_lines[0].seq - 1, log_lines[-1]
    if stored.seq != had:
        raise Conflict(f"session {session_id} was changed while it was being imported; import it again")
    if tx.one("log_import.extend", session=session_id, had=had, seq=head.seq, hash=head.hash) is None:
        raise leases.make_busy_error(tx, session_id)
    _add(tx, session_id, log_lines)
    log.write_head(tx, log.LogHead(session_id, head.seq, head.hash), stored.summary, summary)


def list_import_marks(tx: Transaction, session_id: str) -> list[StoredEvent]:
    """The `imported` events of the session, one per import."""
    rows = tx.all("log_import.list_by_kind", session=session_id, kind="imported")
    return [StoredEvent(*row) for row in rows]  # type: ignore[arg-type] # the schema checks the types


def find_first_message_after(tx: Transaction, session_id: str, seq: int) -> int | None:
    """The first event after `seq` with which an import can continue."""
    row = tx.one("log_import.find_first_message_after", session=session_id, seq=seq)
    return None if row is None else cast("int | None", row[0])


def get_hash(tx: Transaction, session_id: str, seq: int) -> str:
    """The hash of an existing event; for 0, the hash before the first event."""
    row = tx.one("log_import.get_hash", session=session_id, seq=seq)
    return GENESIS if row is None else cast("str", row[0])


def list_kinds_after(tx: Transaction, session_id: str, seq: int) -> set[str]:
    """The kinds of events after `seq`."""
    return {cast("str", row[0]) for row in tx.all("log_import.list_kinds_after", session=session_id, seq=seq)}


def _refuse_diverged(tx: Transaction, stored: Session, verified: VerifiedLog) -> None:
    """Raise Conflict unless one log begins with the other. A hash covers all before it, so one comparison suffices."""
    shared = min(stored.seq, verified.seq)
    row = tx.one("log_import.get_hash", session=stored.id, seq=shared)
    if row is not None and row[0] == next(verified.lines_after(shared - 1)).hash:
        return
    ours = [cast("str", row[0]) for row in tx.all("log_import.list_hashes", session=stored.id)]
    parts = next(
        (n for n, (mine, line) in enumerate(zip(ours, verified.lines(), strict=False), 1) if mine != line.hash), 1
    )
    raise Conflict(
        f"session {stored.id} has another history in this store, different from event {parts} on. "
        "Nothing was imported; --as-new keeps both"
    )


def _insert(tx: Transaction, session_id: str, verified: VerifiedLog, at: int) -> None:
    tx.run("sessions.create", id=session_id, hash=GENESIS, source=verified.summary.source, at=at)
    _add(tx, session_id, verified.lines())
    log.write_head(tx, log.LogHead(session_id, verified.seq, verified.hash), SessionSummary(), verified.summary)


def _add(tx: Transaction, session_id: str, log_lines: Iterable[StoredEvent]) -> None:
    tx.many("log.add", (_row(session_id, line) for line in log_lines))
    tx.notify(session_id)


def _row(session_id: str, line: StoredEvent) -> dict[str, Value]:
    return {"session": session_id, **msgspec.structs.asdict(line)}
