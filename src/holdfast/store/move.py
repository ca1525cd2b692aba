"""Moves a whole store into another database, SQLite or PostgreSQL, in one transaction of the target.

Every table is copied, row by row, from one snapshot of the source; then the target proves what it has: every hash of
every log, every summary, the head of each session and the number of rows of each table against the source. Only then
is it committed: a crash or a fault leaves the target as it was. The source is never changed. What has been moved
keeps its store id, so that a second move of the same store is known as such: it replaces what the first has brought,
unless the target has gone on by itself meanwhile.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from itertools import islice
from typing import Any, Protocol

import msgspec

from holdfast.model.errors import Busy, Conflict, Corrupt, Invalid
from holdfast.store import meta, verify, workers
from holdfast.store.backup import Stages, nothing
from holdfast.store.database import Transaction
from holdfast.store.workers import Worker

FIRST = ("meta", "worker", "session")
"""Tables that others refer to."""
LEFT_BEHIND = ("migration",)
"""Each database keeps the book of its own migrations."""
TELL_EVERY = 5_000


class End(Protocol):
    """A store as the mover sees it. `reading` and `writing` are one transaction each, the second undone if it raises."""

    @property
    def place(self) -> str:
        """For people."""

    def reading(self) -> AbstractContextManager[Transaction]:
        """One snapshot."""

    def writing(self) -> AbstractContextManager[Transaction]:
        """Alone: nobody else writes meanwhile."""

    def tables(self) -> list[str]:
        """Every table of the schema."""

    def columns(self, table: str) -> list[str]:
        """In their order."""

    def rows(self, table: str, columns: Sequence[str]) -> Iterator[tuple[Any, ...]]:
        """All rows, a few at a time."""

    def put(self, table: str, columns: Sequence[str], rows: Iterator[tuple[Any, ...]]) -> None:
        """Add rows."""

    def empty(self, table: str) -> None:
        """Remove all rows."""

    def count(self, table: str) -> int:
        """How many rows there are."""

    def same_as(self) -> object:
        """What is equal for two ends that are one store, however they are spelt."""

    def ahead(self) -> int:
        """By how much the clock that counts in the store is ahead of this machine's, in microseconds."""

    def newest(self) -> int:
        """The highest position ever given to an event."""

    def go_on_from(self, position: int) -> None:
        """Give the next event a higher position than this, and forget what was indexed for searches."""


Refuse = Callable[[Transaction, Transaction, End], None]
"""Raises if the target must stay as it is: told of the source's transaction and the target's."""


class Moved(msgspec.Struct, frozen=True, kw_only=True):
    store_id: str
    sessions: int
    events: int
    rows: int


def move(
    source: End,
    target: End,
    alive: Callable[[Worker], bool],
    on_progress: Stages = nothing,
    *,
    refuse: Refuse | None = None,
    sound: bool = True,
) -> Moved:
    """Make the target what the source is. What is not sound is refused, unless it is to be kept as it is.

    Raises Busy while a worker uses one of them, Conflict if the target holds sessions of another store or has gone
    on by itself, Corrupt if the target does not hold what was written to it. Nothing has changed then.
    """
    with source.reading() as old:
        refuse_alive(source, old, alive)
        with target.writing() as new:
            if source.same_as() == target.same_as():
                raise Invalid("the store is there already; name another address")
            refuse_alive(target, new, alive)
            (refuse or _refuse_other)(old, new, target)
            tables = _in_order(source.tables())
            for table in reversed(tables):
                target.empty(table)
            rows = sum(_copy(source, target, table, on_progress) for table in tables)
            target.go_on_from(source.newest())
            report = _prove(old, new, target, on_progress) if sound else _counted(new)
            return Moved(store_id=meta.store_id(new), sessions=report.sessions, events=report.events, rows=rows)


def refuse_alive(end: End, tx: Transaction, alive: Callable[[Worker], bool]) -> None:
    """Raise Busy while a worker uses the store."""
    ahead = end.ahead()
    for worker in workers.alive(tx):
        if alive(msgspec.structs.replace(worker, beat_at=worker.beat_at - ahead)):
            raise Busy(
                f"{worker.id} ({worker.kind}, pid {worker.pid} on {worker.host}) is using {end.place}; "
                "stop it and try again"
            )


def _refuse_other(old: Transaction, new: Transaction, target: End) -> None:
    """Raise Conflict if the target holds anything that the source has not."""
    if verify.count(new)[0] == 0:
        return
    if meta.store_id(old) != meta.store_id(new):
        raise Conflict(f"{target.place} holds sessions of another store and was left as it is; name an empty one")
    for session_id, seq, hash_ in verify.heads(new):
        row = old.one("transfer.hash_at", session=session_id, seq=seq)
        if seq and (row is None or row[0] != hash_):
            raise Conflict(
                f"{target.place} has gone on by itself since this store was moved there (session {session_id}); "
                "it was left as it is"
            )


def _in_order(tables: Sequence[str]) -> list[str]:
    rest = sorted(set(tables) - set(FIRST) - set(LEFT_BEHIND))
    return [*FIRST, *rest]


def _copy(source: End, target: End, table: str, on_progress: Stages) -> int:
    """All rows of a table; how many."""
    columns, total = source.columns(table), source.count(table)
    done = 0

    def counted() -> Iterator[tuple[Any, ...]]:
        nonlocal done
        for row in source.rows(table, columns):
            yield row
            done += 1
            if done % TELL_EVERY == 0:
                on_progress(f"moving {table}", done, total)

    target.put(table, columns, counted())
    if target.count(table) != done:
        raise Corrupt(f"{target.place} has not all rows of the table {table}; nothing was moved")
    return done


def _prove(old: Transaction, new: Transaction, target: End, on_progress: Stages) -> verify.Report:
    report = verify.verify_copy(new, on_progress=lambda done, total: on_progress("checking", done, total))
    if not report.ok:
        problem = report.problems[0]
        where = f"session {problem.session_id}: " if problem.session_id else ""
        raise Corrupt(f"what was moved is damaged, and nothing was kept of it: {where}{problem.what}")
    if verify.heads(old) != verify.heads(new):
        raise Corrupt(f"{target.place} does not hold the sessions that were moved; nothing was kept of it")
    return report


def _counted(new: Transaction) -> verify.Report:
    held, events = verify.count(new)
    return verify.Report(sessions=held, events=events)


def batches(rows: Iterator[tuple[Any, ...]], size: int) -> Iterator[list[tuple[Any, ...]]]:
    while batch := list(islice(rows, size)):
        yield batch
