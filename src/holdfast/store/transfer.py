"""Whole logs into and out of the store, row by row, with the hashes they were written with."""

from collections.abc import Sequence
from typing import Literal, cast

import msgspec

from holdfast.model.errors import Conflict, Corrupt
from holdfast.model.event import GENESIS, Imported, decode, link
from holdfast.model.session import Session, Summary, fold
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


def fold_lines(log_lines: Sequence[Line]) -> Summary:
    """What the lines add up to. Raises Corrupt for an event this release cannot read."""
    summary = Summary()
    for line in log_lines:
        summary = fold(summary, decode(line.kind, line.body), line.at)
    return summary


def merge(tx: Transaction, session_id: str, log_lines: Sequence[Line], summary: Summary, *, at: int) -> Merged:
    """Bring a checked log under its own id into the store. The same log again changes nothing.

    Raises Conflict, having written nothing, if the store has another history under this id, and Busy if the
    session would grow while somebody holds it.
    """
    if (other := aliases.find(tx, session_id)) is not None:
        raise Conflict(f"{session_id} is another name of session {other} here; nothing was imported")
    if tx.one("sessions.get", id=session_id) is None:
        _insert(tx, session_id, log_lines, summary, at)
        return Merged("new", sessions.get(tx, session_id), len(log_lines))
    stored = sessions.get(tx, session_id)
    _refuse_diverged(tx, stored, log_lines)
    if stored.seq >= len(log_lines):
        return Merged("same" if stored.seq == len(log_lines) else "behind", stored, 0)
    rest = log_lines[stored.seq :]
    head = rest[-1]
    if tx.one("transfer.extend", session=session_id, had=stored.seq, seq=head.seq, hash=head.hash) is None:
        raise leases.busy(tx, session_id)
    _add(tx, session_id, rest)
    log.settle(tx, session_id, head.hash, stored.summary, summary)
    return Merged("extended", sessions.get(tx, session_id), len(rest))


def add_as(
    tx: Transaction, new_id: str, log_lines: Sequence[Line], summary: Summary, imported: Imported, *, at: int
) -> Merged:
    """Bring a checked log into the store as a session of its own; a last event says where it came from."""
    _insert(tx, new_id, log_lines, summary, at)
    session = log.append_unheld(tx, new_id, [imported], at=at)
    return Merged("new", session, session.seq)


def _refuse_diverged(tx: Transaction, stored: Session, log_lines: Sequence[Line]) -> None:
    """A hash stands for all before it, so one comparison tells whether one log begins with the other."""
    shared = min(stored.seq, len(log_lines))
    row = tx.one("transfer.hash_at", session=stored.id, seq=shared)
    if row is not None and row[0] == log_lines[shared - 1].hash:
        return
    ours = [cast("str", row[0]) for row in tx.all("transfer.hashes", session=stored.id)]
    parts = next((n for n, (mine, line) in enumerate(zip(ours, log_lines, strict=False), 1) if mine != line.hash), 1)
    raise Conflict(
        f"session {stored.id} has another history here: it differs from event {parts} on. "
        "Nothing was imported; --as-new keeps both"
    )


def _insert(tx: Transaction, session_id: str, log_lines: Sequence[Line], summary: Summary, at: int) -> None:
    head = log_lines[-1]
    tx.run("sessions.create", id=session_id, hash=GENESIS, source=summary.source, at=at)
    _add(tx, session_id, log_lines)
    tx.run("sessions.place_head", id=session_id, seq=head.seq, hash=head.hash)
    log.settle(tx, session_id, head.hash, Summary(), summary)


def _add(tx: Transaction, session_id: str, log_lines: Sequence[Line]) -> None:
    tx.many("log.add", (_row(session_id, line) for line in log_lines))
    tx.notify(session_id)


def _row(session_id: str, line: Line) -> dict[str, Value]:
    return {"session": session_id, **msgspec.structs.asdict(line)}
