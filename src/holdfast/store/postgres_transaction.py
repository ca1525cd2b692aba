"""A transaction on PostgreSQL as the repositories see it, and how two of them are kept apart."""

import hashlib
from collections.abc import Callable, Iterable, Mapping

from holdfast.store.database import Row, Value
from holdfast.store.postgres_pipe import Pipe

Enter = Callable[[Value], None]
"""Told, before the first statement of a write, what the write is about."""
MANY = 1_000
"""Statements sent without looking at their answers."""


class PostgresTransaction:
    """Named queries on one connection, inside a transaction that somebody else begins and ends.

    What a write names it also locks, until its end: the functions were written for a store with one writer at a
    time, and look before they act. Two that name the same session, channel, alias, process or key wait for each
    other; all others go side by side. Each statement sees what was committed before it, so whoever had to wait sees
    what the other did. A worker that is named is locked only against being buried meanwhile.
    """

    def __init__(self, pipe: Pipe, *, writes: bool, enter: Enter | None = None) -> None:
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
        return self._pipe.ask(query, params)

    def run(self, query: str, **params: Value) -> None:
        self._lock(query, params)
        self._pipe.tell(query, params)

    def count(self, query: str, **params: Value) -> int:
        self._lock(query, params)
        return self._pipe.count(query, params)

    def many(self, query: str, rows: Iterable[Mapping[str, Value]]) -> None:
        for number, row in enumerate(rows, 1):
            self._lock(query, row)
            self._pipe.tell(query, row)
            if number % MANY == 0:
                self._pipe.catch_up()

    def notify(self, topic: str) -> None:
        self.topics.add(topic)

    def listed(self, query: str, **params: Value | list[str]) -> list[Row]:
        """As `all`, for a query of this driver's own: lists may be given, and it is planned for just these values."""
        return self._pipe.ask_once(query, params)

    def _lock(self, query: str, params: Mapping[str, Value]) -> None:
        if not self._writes:
            return
        names = locks(query, params)
        if self._enter is not None:
            self._enter(next((params[name] for name, alone in names if alone), None))
            self._enter = None
        for name, alone in names:
            value = params[name]
            if (value, alone) in self._held or (value, True) in self._held:
                continue
            self._held.add((value, alone))
            high, low = lock_key(value)
            self._pipe.tell("driver.lock" if alone else "driver.lock_shared", {"high": high, "low": low})


NAMES = ("session", "id", "parent", "to", "channel", "alias", "key", "schedule", "person")
"""Parameters that name what a write is about."""
UNLOCKED = ("workers.register", "workers.beat")
"""One statement each, and a heartbeat must not wait."""
BURIALS = ("workers.end", "workers.clear")


def locks(query: str, params: Mapping[str, Value]) -> list[tuple[str, bool]]:
    """Which of the parameters are locked, and whether alone; in an order in which nobody waits while he holds a worker."""
    if query in UNLOCKED:
        return []
    if query.startswith("workers."):
        return [("id", query in BURIALS)] if "id" in params else []
    return [(name, True) for name in NAMES if params.get(name)] + [("worker", False)] * bool(params.get("worker"))


def lock_key(value: Value) -> tuple[int, int]:
    """The two whole numbers that stand for a name, the same in every process."""
    digest = hashlib.blake2b(str(value).encode("utf-8"), digest_size=8).digest()
    return int.from_bytes(digest[:4], "big", signed=True), int.from_bytes(digest[4:], "big", signed=True)
