"""A transaction on PostgreSQL, and the advisory locks that serialize transactions on the same keys."""

import hashlib
from collections.abc import Callable, Iterable, Mapping
from functools import cache

from holdfast.store import queries
from holdfast.store.database import Row, Value
from holdfast.store.postgres.pipeline import Pipeline

Enter = Callable[[Value], None]
"""Called before the first statement of a write, with the key that the write concerns."""
MANY = 1_000
"""Statements sent before their results are read."""


class PostgresTransaction:
    """Named queries on one connection. The caller begins and ends the transaction.

    A write locks the keys that it names, until its end: the repository functions are written for one writer at a time,
    and read before they write. Two writes that name the same session, channel, alias, process or key run one after the
    other; all others run concurrently. Each statement sees everything that was committed before it, so a write that had
    to wait sees what the other one did. For a worker, the lock is shared: it only keeps the worker from being marked as dead.
    """

    def __init__(self, pipe: Pipeline, *, writes: bool, enter: Enter | None = None) -> None:
        self._pipe = pipe
        self._writes = writes
        self._enter = enter
        self._held: set[tuple[Value, bool]] = set()
        self.topics: set[str] = set()

    def one(self, query: str, **params: Value) -> Row | None:
        rows = self.all(query, **params)
        return rows[0] if rows else None

    def all(self, query: str, **params: Value) -> list[Row]:
        self._lock(query, params)
        return self._pipe.fetch(query, params)

    def run(self, query: str, **params: Value) -> None:
        self._lock(query, params)
        self._pipe.send(query, params)

    def count(self, query: str, **params: Value) -> int:
        self._lock(query, params)
        return self._pipe.count(query, params)

    def many(self, query: str, rows: Iterable[Mapping[str, Value]]) -> None:
        for number, row in enumerate(rows, 1):
            self._lock(query, row)
            self._pipe.send(query, row)
            if number % MANY == 0:
                self._pipe.sync()

    def notify(self, topic: str) -> None:
        self.topics.add(topic)

    def listed(self, query: str, **params: Value | list[str]) -> list[Row]:
        """Like `all`, for queries of this driver: values may be lists, and the server plans the query for these values."""
        return self._pipe.fetch_unprepared(query, params)

    def _lock(self, query: str, params: Mapping[str, Value]) -> None:
        if not self._writes:
            return
        names = find_locks(query, params)
        if self._enter is not None:
            self._enter(next((params[name] for name, exclusive in names if exclusive), None))
            self._enter = None
        for name, exclusive in names:
            value = params[name]
            if (value, exclusive) in self._held or (value, True) in self._held:
                continue
            self._held.add((value, exclusive))
            high, low = lock_key(value)
            self._pipe.send("driver.lock" if exclusive else "driver.lock_shared", {"high": high, "low": low})


NAMES = ("session", "id", "parent", "to", "channel", "alias", "key", "schedule", "person")
"""Parameters that are keys to lock."""
UNLOCKED = ("workers.register", "workers.record_heartbeat")
"""Single statements; a heartbeat must not wait."""
EXCLUSIVE_WORKER_QUERIES = ("workers.mark_dead", "workers.mark_cleared")


def find_locks(query: str, params: Mapping[str, Value]) -> list[tuple[str, bool]]:
    """The parameters to lock, and whether exclusively. Workers come last, so that no transaction waits while it locks one."""
    return [lock for lock in _possible_locks(query) if params.get(lock[0])]


@cache
def _possible_locks(query: str) -> tuple[tuple[str, bool], ...]:
    """The parameters of the query that are keys, and whether they are locked exclusively."""
    names = queries.numbered()[query][1]
    if query in UNLOCKED:
        return ()
    if query.startswith("workers."):
        return (("id", query in EXCLUSIVE_WORKER_QUERIES),) if "id" in names else ()
    keys = tuple((name, True) for name in NAMES if name in names)
    return (*keys, ("worker", False)) if "worker" in names else keys


def lock_key(value: Value) -> tuple[int, int]:
    """The two integers of the advisory lock for a key, the same in every process."""
    digest = hashlib.blake2b(str(value).encode("utf-8"), digest_size=8).digest()
    return int.from_bytes(digest[:4], "big", signed=True), int.from_bytes(digest[4:], "big", signed=True)
