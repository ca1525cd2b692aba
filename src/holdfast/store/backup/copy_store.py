"""Copies a whole store to another database, SQLite or PostgreSQL, in one transaction of the target.

Every table is copied row by row from one snapshot of the source. Then the copy is verified: every hash of every log, every
summary, and the head of each session and the row count of each table against the source. Only then is it committed: a crash
or an error leaves the target unchanged. The source is never changed. The copy keeps the store id, so a second copy of the
same store is recognised: it replaces the first, unless the target has new events of its own.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from itertools import islice
from typing import Any, Protocol

import msgspec

from holdfast.model.errors import Busy, Conflict, Corrupt, Invalid
from holdfast.store import verify
from holdfast.store.backup.backup import BackupProgress, ignore_progress
from holdfast.store.database import Transaction
from holdfast.store.repos import meta, workers
from holdfast.store.repos.workers import Worker

FIRST = ("meta", "worker", "session")
"""Tables that other tables refer to."""
LEFT_BEHIND = ("migration",)
"""Each database records its own migrations."""
TELL_EVERY = 5_000


class StoreEndpoint(Protocol):
    """The source or target of a copy. `reading` and `writing` are one transaction each; `writing` is rolled back on an error."""

    @property
    def location(self) -> str:
        """The location, for messages."""

    def reading(self) -> AbstractContextManager[Transaction]:
        """A read transaction on one snapshot."""

    def writing(self) -> AbstractContextManager[Transaction]:
        """An exclusive write transaction."""

    def tables(self) -> list[str]:
        """Every table of the schema."""

    def columns(self, table: str) -> list[str]:
        """The columns of a table, in order."""

    def rows(self, table: str, columns: Sequence[str]) -> Iterator[tuple[Any, ...]]:
        """All rows, read in batches."""

    def insert_rows(self, table: str, columns: Sequence[str], rows: Iterator[tuple[Any, ...]]) -> None:
        """Add rows."""

    def delete_rows(self, table: str) -> None:
        """Delete all rows."""

    def count(self, table: str) -> int:
        """The number of rows."""

    def identity(self) -> object:
        """A value that is equal for two endpoints of the same store, whatever their URLs."""

    def clock_offset(self) -> int:
        """How far the clock of the store is ahead of this machine's, in microseconds."""

    def get_last_position(self) -> int:
        """The highest position ever assigned to an event."""

    def set_last_position(self, position: int) -> None:
        """Make the next event get a higher position than this, and clear the search index in the store."""


Refuse = Callable[[Transaction, Transaction, StoreEndpoint], None]
"""Raises if the target must not be replaced. Gets the transactions of the source and the target, and the target."""


class CopyReport(msgspec.Struct, frozen=True, kw_only=True):
    store_id: str
    sessions: int
    events: int
    rows: int


def copy_store(
    source: StoreEndpoint,
    target: StoreEndpoint,
    alive: Callable[[Worker], bool],
    on_progress: BackupProgress = ignore_progress,
    *,
    refuse: Refuse | None = None,
    must_be_sound: bool = True,
) -> CopyReport:
    """Replace the content of the target with that of the source. Damage is refused if `must_be_sound` is set.

    Raises Busy while a worker uses one of them, Conflict if the target has sessions of another store or new events of its
    own, and Corrupt if the copy is damaged. In all these cases nothing has changed.
    """
    with source.reading() as old:
        refuse_alive(source, old, alive)
        with target.writing() as new:
            if source.identity() == target.identity():
                raise Invalid("source and target are the same store; give another URL")
            refuse_alive(target, new, alive)
            (refuse or _refuse_other)(old, new, target)
            tables = _in_order(source.tables())
            for table in reversed(tables):
                target.delete_rows(table)
            rows = sum(_copy(source, target, table, on_progress) for table in tables)
            target.set_last_position(source.get_last_position())
            report = _prove(old, new, target, on_progress) if must_be_sound else _counted(new)
            return CopyReport(
                store_id=meta.get_store_id(new), sessions=report.sessions, events=report.events, rows=rows
            )


def refuse_alive(end: StoreEndpoint, tx: Transaction, alive: Callable[[Worker], bool]) -> None:
    """Raise Busy while a worker uses the store."""
    ahead = end.clock_offset()
    for worker in workers.list_alive(tx):
        if alive(msgspec.structs.replace(worker, beat_at=worker.beat_at - ahead)):
            raise Busy(
                f"{worker.id} ({worker.kind}, pid {worker.pid} on {worker.host}) is using {end.location}; "
                "stop it and try again"
            )


def _refuse_other(old: Transaction, new: Transaction, target: StoreEndpoint) -> None:
    """Raise Conflict if the target contains anything that the source does not."""
    if verify.count(new)[0] == 0:
        return
    if meta.get_store_id(old) != meta.get_store_id(new):
        raise Conflict(
            f"{target.location} contains sessions of another store and was left unchanged; give an empty one"
        )
    for session_id, seq, hash_ in verify.list_heads(new):
        row = old.one("log_import.get_hash", session=session_id, seq=seq)
        if seq and (row is None or row[0] != hash_):
            raise Conflict(
                f"{target.location} has new events since this store was copied there (session {session_id}); "
                "it was left unchanged"
            )


def _in_order(tables: Sequence[str]) -> list[str]:
    rest = sorted(set(tables) - set(FIRST) - set(LEFT_BEHIND))
    return [*FIRST, *rest]


def _copy(source: StoreEndpoint, target: StoreEndpoint, table: str, on_progress: BackupProgress) -> int:
    """Copy all rows of a table; returns their number."""
    columns, total = source.columns(table), source.count(table)
    done = 0

    def counted() -> Iterator[tuple[Any, ...]]:
        nonlocal done
        for row in source.rows(table, columns):
            yield row
            done += 1
            if done % TELL_EVERY == 0:
                on_progress(f"moving {table}", done, total)

    target.insert_rows(table, columns, counted())
    if target.count(table) != done:
        raise Corrupt(f"{target.location} does not have all rows of table {table}; nothing was copied")
    return done


def _prove(
    old: Transaction, new: Transaction, target: StoreEndpoint, on_progress: BackupProgress
) -> verify.VerifyReport:
    report = verify.verify_copy(new, on_progress=lambda done, total: on_progress("checking", done, total))
    if not report.ok:
        problem = report.problems[0]
        where = f"session {problem.session_id}: " if problem.session_id else ""
        raise Corrupt(f"the copy is damaged and was discarded: {where}{problem.what}")
    if verify.list_heads(old) != verify.list_heads(new):
        raise Corrupt(f"{target.location} does not have the sessions of the source; the copy was discarded")
    return report


def _counted(new: Transaction) -> verify.VerifyReport:
    held, events = verify.count(new)
    return verify.VerifyReport(sessions=held, events=events)


def batches(rows: Iterator[tuple[Any, ...]], size: int) -> Iterator[list[tuple[Any, ...]]]:
    while batch := list(islice(rows, size)):
        yield batch
