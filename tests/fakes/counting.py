"""A database that counts the statements and rows of each transaction: cost is counted, not timed."""

import threading
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from holdfast.store.database import Database, Row, Transaction, Unsubscribe, Value


@dataclass
class Cost:
    """What transactions did: how often each query ran, and how many rows it returned or was given."""

    statements: Counter[str] = field(default_factory=Counter)
    rows: Counter[str] = field(default_factory=Counter)


class CountingTransaction:
    """Passes everything through and counts it."""

    def __init__(self, inner: Transaction, cost: Cost) -> None:
        self._inner = inner
        self._cost = cost

    def one(self, query: str, **params: Value) -> Row | None:
        self._count(query, 1)
        return self._inner.one(query, **params)

    def all(self, query: str, **params: Value) -> list[Row]:
        rows = self._inner.all(query, **params)
        self._count(query, len(rows))
        return rows

    def run(self, query: str, **params: Value) -> None:
        self._count(query, 0)
        self._inner.run(query, **params)

    def count(self, query: str, **params: Value) -> int:
        self._count(query, 0)
        return self._inner.count(query, **params)

    def many(self, query: str, rows: Iterable[Mapping[str, Value]]) -> None:
        given = list(rows)
        self._count(query, len(given))
        self._inner.many(query, given)

    def notify(self, topic: str) -> None:
        self._inner.notify(topic)

    def _count(self, query: str, rows: int) -> None:
        self._cost.statements[query] += 1
        self._cost.rows[query] += rows


class CountingDatabase:
    """`reads` and `writes` are the totals of each kind of transaction."""

    def __init__(self, inner: Database) -> None:
        self._inner = inner
        self._local = threading.local()
        self.reset()

    def reset(self) -> None:
        self.reads, self.writes = Cost(), Cost()

    @property
    def is_writing(self) -> bool:
        """Whether this thread is inside a write transaction."""
        return getattr(self._local, "writing", False)

    async def write(self, work: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        return await self._inner.write(self._watched, work, *args, **kwargs)

    def write_from_thread(self, work: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        return self._inner.write_from_thread(self._watched, work, *args, **kwargs)

    def _watched(self, tx: Transaction, work: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        self._local.writing = True
        try:
            return work(CountingTransaction(tx, self.writes), *args, **kwargs)
        finally:
            self._local.writing = False

    async def read(self, work: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        return await self._inner.read(lambda tx: work(CountingTransaction(tx, self.reads), *args, **kwargs))

    def subscribe(self, topic: str, callback: Callable[[], object]) -> Unsubscribe:
        return self._inner.subscribe(topic, callback)

    def listen(self, topic: str) -> AsyncGenerator[None, None]:
        return self._inner.listen(topic)

    def damage(self) -> str | None:
        return self._inner.damage()

    async def close(self) -> None:
        await self._inner.close()
