"""Named queries on a PostgreSQL connection that nothing else uses: no pipeline, no advisory locks."""

from collections.abc import Iterable, Mapping
from typing import cast

from holdfast.store.database import Row, Value
from holdfast.store.postgres.connection import Link, named


class NamedQueryTransaction:
    """Runs inside a transaction that the caller begins and ends."""

    def __init__(self, link: Link) -> None:
        self._link = link

    def one(self, query: str, **params: Value) -> Row | None:
        return cast("Row | None", self._link.execute(named(query), params).fetchone())

    def all(self, query: str, **params: Value) -> list[Row]:
        return cast("list[Row]", self._link.execute(named(query), params).fetchall())

    def run(self, query: str, **params: Value) -> None:
        self._link.execute(named(query), params)

    def count(self, query: str, **params: Value) -> int:
        return self._link.execute(named(query), params).rowcount

    def many(self, query: str, rows: Iterable[Mapping[str, Value]]) -> None:
        self._link.cursor().executemany(named(query), rows)

    def notify(self, topic: str) -> None:
        raise AssertionError(f"notifications are not supported on an exclusive connection ({topic})")
