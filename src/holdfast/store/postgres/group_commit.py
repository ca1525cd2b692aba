"""Commits the writes of several sessions in one transaction, in two round trips.

Most writes begin with a query for the row of their session, and everything after it concerns that session. Such writes can
share a transaction. Each is first run up to its first query, which is not sent (`find_first_statement`). Then the locks and
the first queries of all of them are sent together. With these results each work runs again from the start, and what it
writes is sent together with the commit. A work may run several times, because its only effect is on the transaction.

No work sees another one of its group: each names a different session, and nothing else. One that does name something else, or
needs a lock that another transaction holds, runs alone afterwards. There are no savepoints: if a work raises after it has
written something, or if a statement fails, the group is rolled back and each work runs alone.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec
import psycopg

from holdfast.store import queries
from holdfast.store.database import Row, Transaction, Value
from holdfast.store.postgres.pipeline import Pipeline
from holdfast.store.postgres.transaction import PostgresTransaction, find_locks, lock_key
from holdfast.store.postgres.write_job import PostgresWriteJob

Params = Mapping[str, Value]


class FirstStatement(msgspec.Struct, frozen=True):
    """The first statement of a work, and what it locks."""

    query: str
    params: Params
    exclusive: tuple[Value, ...]
    shared: tuple[Value, ...]

    @property
    def key(self) -> Value:
        """The key by which writes are ordered; None if the statement names none."""
        return self.exclusive[0] if self.exclusive else None

    @property
    def can_be_grouped(self) -> bool:
        return len(set(self.exclusive)) == 1 and _is_select(self.query)


class MustRunAlone(BaseException):
    """The work concerns more than its session. Like the next one not an `Exception`, so that no work handles it."""


class _Found(BaseException):
    """Ends a trial run at the first statement."""

    def __init__(self, query: str, params: Params) -> None:
        self.query, self.params = query, params


class _TrialTransaction:
    """Sends nothing."""

    def one(self, query: str, **params: Value) -> Row | None:
        raise _Found(query, params)

    def all(self, query: str, **params: Value) -> list[Row]:
        raise _Found(query, params)

    def run(self, query: str, **params: Value) -> None:
        raise _Found(query, params)

    def count(self, query: str, **params: Value) -> int:
        raise _Found(query, params)

    def many(self, query: str, rows: Iterable[Params]) -> None:
        for row in rows:
            raise _Found(query, row)

    def notify(self, topic: str) -> None:
        """Nothing is committed."""


class _GroupedTransaction(PostgresTransaction):
    """For a work whose locks are held and whose first query was sent."""

    def __init__(self, pipe: Pipeline, first: FirstStatement, rows: list[Row]) -> None:
        super().__init__(pipe, writes=True)
        self._first: FirstStatement | None = first
        self._rows = rows
        self._key = first.key
        self._held.update((value, False) for value in first.shared)
        self._held.add((first.key, True))
        self.has_written = False

    def all(self, query: str, **params: Value) -> list[Row]:
        if self._first is not None:
            assert (query, params) == (self._first.query, self._first.params), (
                "a work begins with the same query each time"
            )
            self._first = None
            return self._rows
        return super().all(query, **params)

    def _lock(self, query: str, params: Params) -> None:
        locks = find_locks(query, params)
        if {params[name] for name, exclusive in locks if exclusive} != {self._key}:
            raise MustRunAlone
        if locks[-1][1] is False:
            super()._lock(query, params)
        self.has_written = self.has_written or not _is_select(query)


def find_first_statement(work: Callable[[Transaction], object]) -> FirstStatement | None:
    """The first statement of the work; None if it has none, or raises before it."""
    try:
        work(_TrialTransaction())
    except _Found as found:
        locks = find_locks(found.query, found.params)
        named = [(found.params[name], exclusive) for name, exclusive in locks]
        return FirstStatement(
            found.query,
            found.params,
            tuple(value for value, exclusive in named if exclusive),
            tuple(value for value, exclusive in named if not exclusive),
        )
    except BaseException:  # noqa: BLE001 - it is raised again when the work runs alone
        return None
    return None


def run_group(pipe: Pipeline, group: Sequence[tuple[PostgresWriteJob, FirstStatement]]) -> None:
    """Run the works in the transaction that has begun. Sets `runs_alone` of those that have to run alone after it.

    Raises MustRunAlone, or an error of PostgreSQL, if that is true for all of them.
    """
    keys = [(key, False) for _, first in group for key in first.exclusive[:1]]
    keys += [(key, True) for key in {key for _, first in group for key in first.shared}]
    places = [lock_key(key) for key, _ in keys]
    locks: dict[str, list[str]] = {
        "highs": [str(high) for high, _ in places],
        "lows": [str(low) for _, low in places],
        "shared": [str(int(shared)) for _, shared in keys],
    }
    pipe.send("driver.limit_lock_wait")
    answers = pipe.fetch_all([("driver.try_locks", locks), *((first.query, first.params) for _, first in group)])
    granted = {key for key, row in zip(keys, answers[0], strict=True) if row[0]}
    for (job, first), rows in zip(group, answers[1:], strict=True):
        if (first.key, False) in granted and all((key, True) in granted for key in first.shared):
            _run(job, _GroupedTransaction(pipe, first, rows))
        else:
            job.runs_alone = True


def _is_select(query: str) -> bool:
    """Whether it only reads, and locks rows at most."""
    return queries.numbered()[query][0].startswith(b"SELECT")


def _run(job: PostgresWriteJob, transaction: _GroupedTransaction) -> None:
    try:
        job.result = job.work(transaction)
        job.topics = transaction.topics
    except psycopg.Error:
        raise
    except MustRunAlone:
        job.is_solitary = True
        if transaction.has_written:
            raise
        job.runs_alone = True
    except BaseException as e:
        if transaction.has_written:
            raise MustRunAlone from e
        job.error = e
