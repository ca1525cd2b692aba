"""The two kinds of stores between which a store can be moved.

Their statements are in `sql/move.sql`; the names of tables and columns that are put into them come from the schema, which
is that of our own migrations.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import apsw

from holdfast.clock import SystemClock
from holdfast.store import files, migrate, queries, sqlite_connection
from holdfast.store.database import Transaction
from holdfast.store.move import batches
from holdfast.store.sqlite_connection import SqliteTransaction

if TYPE_CHECKING:
    from holdfast.store.postgres_connection import Link

BATCH = 500
ONLY_THERE = ("mark", "words", "words_state")
"""Tables of PostgreSQL's own, which stay where they are."""


def _filled(query: str, table: str, columns: Sequence[str] = ()) -> str:
    """A query for one table."""
    names = ", ".join(f'"{column}"' for column in columns)
    return query.format(table=f'"{table}"', columns=names, marks=", ".join("?" * len(columns)))


class SqliteEnd:
    """A store in a file; a target is made if it is not there."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._queries = queries.load()

    @property
    def place(self) -> str:
        return str(self._path)

    @contextmanager
    def reading(self) -> Iterator[Transaction]:
        yield from self._transaction("BEGIN")

    @contextmanager
    def writing(self) -> Iterator[Transaction]:
        files.prepare(self._path)
        yield from self._transaction("BEGIN IMMEDIATE")

    def _transaction(self, begin: str) -> Iterator[Transaction]:
        try:
            migrate.refuse_foreign(self._path)
            files.tighten(self._path)
            self._connection = sqlite_connection.connect(self._path)
            try:
                migrate.migrate(self._connection, self._path)
                self._connection.execute(begin)
                yield SqliteTransaction(self._connection)
                self._connection.execute("COMMIT")
            finally:
                self._connection.close(True)
        except apsw.Error as e:
            raise sqlite_connection.translated(e, self._path) from e

    def tables(self) -> list[str]:
        return [str(row[0]) for row in self._run("tables")]

    def columns(self, table: str) -> list[str]:
        return [str(row[0]) for row in self._run("columns", {"table": table})]

    def rows(self, table: str, columns: Sequence[str]) -> Iterator[tuple[Any, ...]]:
        yield from self._connection.execute(_filled(self._queries["move.rows"], table, columns))

    def put(self, table: str, columns: Sequence[str], rows: Iterator[tuple[Any, ...]]) -> None:
        statement = _filled(self._queries["move.put"], table, columns)
        for batch in batches(rows, BATCH):
            self._connection.executemany(statement, batch).fetchall()

    def empty(self, table: str) -> None:
        self._connection.execute(_filled(self._queries["move.empty"], table)).fetchall()

    def count(self, table: str) -> int:
        return cast("int", self._connection.execute(_filled(self._queries["move.count"], table)).get)

    def same_as(self) -> object:
        found = self._path.stat()
        return found.st_dev, found.st_ino

    def ahead(self) -> int:
        return 0

    def newest(self) -> int:
        return cast("int", next(iter(self._run("newest")), (0,))[0])

    def go_on_from(self, position: int) -> None:
        self._run("forget_newest")
        self._run("go_on_from", {"position": position})

    def _run(self, query: str, params: dict[str, str | int] | None = None) -> list[tuple[Any, ...]]:
        return self._connection.execute(self._queries[f"move.{query}"], params or {}).fetchall()


class PostgresEnd:
    """A store in a PostgreSQL database; its tables are made if they are not there."""

    def __init__(self, url: str) -> None:
        from holdfast.store.postgres_connection import shown

        self._url = url
        self._place = shown(url)
        self._queries = queries.for_psycopg()

    @property
    def place(self) -> str:
        return self._place

    @contextmanager
    def reading(self) -> Iterator[Transaction]:
        yield from self._transaction("driver.begin_read")

    @contextmanager
    def writing(self) -> Iterator[Transaction]:
        yield from self._transaction("driver.begin", "driver.close_to_others")

    def _transaction(self, *begin: str) -> Iterator[Transaction]:
        import psycopg

        from holdfast.store import postgres_migrate
        from holdfast.store.postgres_connection import connect, named, refuse_unfit, translated
        from holdfast.store.postgres_plain import PlainTransaction

        try:
            with connect(self._url) as link:
                refuse_unfit(link, self._place)
                postgres_migrate.bring_up(link, self._place)
                self._link: Link = link
                for query in begin:
                    link.execute(named(query))
                try:
                    yield PlainTransaction(link)
                    link.execute(named("driver.commit"))
                finally:
                    link.rollback()
        except (psycopg.Error, UnicodeEncodeError) as e:
            raise translated(e, self._place) from e

    def tables(self) -> list[str]:
        return [row[0] for row in self._run("tables") if row[0] not in ONLY_THERE]

    def columns(self, table: str) -> list[str]:
        return [row[0] for row in self._run("columns", {"table": table})]

    def rows(self, table: str, columns: Sequence[str]) -> Iterator[tuple[Any, ...]]:
        with self._link.cursor(name="moved") as cursor:
            cursor.itersize = BATCH
            cursor.execute(_filled(self._queries["move.rows"], table, columns))
            yield from cursor

    def put(self, table: str, columns: Sequence[str], rows: Iterator[tuple[Any, ...]]) -> None:
        with self._link.cursor() as cursor, cursor.copy(_filled(self._queries["move.put"], table, columns)) as copied:
            for row in rows:
                copied.write_row(row)

    def empty(self, table: str) -> None:
        self._link.execute(_filled(self._queries["move.empty"], table))

    def count(self, table: str) -> int:
        row = self._link.execute(_filled(self._queries["move.count"], table)).fetchone()
        assert row is not None
        return int(row[0])

    def same_as(self) -> object:
        return self._link.execute(self._queries["driver.same"]).fetchone()

    def ahead(self) -> int:
        [(theirs,)] = self._link.execute(self._queries["driver.clock"]).fetchall()
        return int(theirs) - SystemClock().now()

    def newest(self) -> int:
        return int(self._run("newest")[0][0])

    def go_on_from(self, position: int) -> None:
        self._run("go_on_from", {"position": position})
        for table in ("words", "words_state"):
            self.empty(table)

    def _run(self, query: str, params: dict[str, str | int] | None = None) -> list[tuple[Any, ...]]:
        return self._link.execute(self._queries[f"move.{query}"], params).fetchall()
