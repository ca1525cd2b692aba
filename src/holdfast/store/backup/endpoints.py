"""SQLite and PostgreSQL stores as the source or target of a copy.

Their statements are in `sql/copy_store.sql`. The names of tables and columns that are inserted there come from the schema of
our own migrations.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import apsw

from holdfast.clock import SystemClock
from holdfast.store import queries
from holdfast.store.backup.copy_store import batches
from holdfast.store.database import Transaction
from holdfast.store.sqlite import connection, location, migrate
from holdfast.store.sqlite.connection import SqliteTransaction

if TYPE_CHECKING:
    from holdfast.store.postgres.connection import Link

BATCH = 500
ONLY_THERE = ("mark", "words", "words_state")
"""Tables that only PostgreSQL stores have; they are not copied."""


def _filled(query: str, table: str, columns: Sequence[str] = ()) -> str:
    """The query with the names of the table and its columns."""
    names = ", ".join(f'"{column}"' for column in columns)
    return query.format(table=f'"{table}"', columns=names, marks=", ".join("?" * len(columns)))


class SqliteEndpoint:
    """A store in a file; a missing target is created."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._queries = queries.load()

    @property
    def location(self) -> str:
        return str(self._path)

    @contextmanager
    def reading(self) -> Iterator[Transaction]:
        yield from self._transaction("BEGIN")

    @contextmanager
    def writing(self) -> Iterator[Transaction]:
        location.prepare(self._path)
        yield from self._transaction("BEGIN IMMEDIATE")

    def _transaction(self, begin: str) -> Iterator[Transaction]:
        try:
            migrate.refuse_foreign(self._path)
            location.tighten(self._path)
            self._connection = connection.connect(self._path)
            try:
                migrate.migrate(self._connection, self._path)
                self._connection.execute(begin)
                yield SqliteTransaction(self._connection)
                self._connection.execute("COMMIT")
            finally:
                self._connection.close(True)
        except apsw.Error as e:
            raise connection.translate_any(e, self._path) from e

    def tables(self) -> list[str]:
        return [str(row[0]) for row in self._run("copy_store.list_tables")]

    def columns(self, table: str) -> list[str]:
        return [str(row[0]) for row in self._run("copy_store.list_columns", {"table": table})]

    def rows(self, table: str, columns: Sequence[str]) -> Iterator[tuple[Any, ...]]:
        yield from self._connection.execute(_filled(self._queries["copy_store.read_rows"], table, columns))

    def insert_rows(self, table: str, columns: Sequence[str], rows: Iterator[tuple[Any, ...]]) -> None:
        statement = _filled(self._queries["copy_store.insert"], table, columns)
        for batch in batches(rows, BATCH):
            self._connection.executemany(statement, batch).fetchall()

    def delete_rows(self, table: str) -> None:
        self._connection.execute(_filled(self._queries["copy_store.delete_rows"], table)).fetchall()

    def count(self, table: str) -> int:
        return cast("int", self._connection.execute(_filled(self._queries["copy_store.count"], table)).get)

    def identity(self) -> object:
        found = self._path.stat()
        return found.st_dev, found.st_ino

    def clock_offset(self) -> int:
        return 0

    def get_last_position(self) -> int:
        return cast("int", next(iter(self._run("copy_store.get_last_position")), (0,))[0])

    def set_last_position(self, position: int) -> None:
        self._run("copy_store.clear_last_position")
        self._run("copy_store.set_last_position", {"position": position})

    def _run(self, query: str, params: dict[str, str | int] | None = None) -> list[tuple[Any, ...]]:
        return self._connection.execute(self._queries[query], params or {}).fetchall()


class PostgresEndpoint:
    """A store in a PostgreSQL database; missing tables are created."""

    def __init__(self, url: str) -> None:
        from holdfast.store.postgres.connection import redact_url

        self._url = url
        self._location = redact_url(url)
        self._queries = queries.for_psycopg()

    @property
    def location(self) -> str:
        return self._location

    @contextmanager
    def reading(self) -> Iterator[Transaction]:
        yield from self._transaction("driver.begin_read")

    @contextmanager
    def writing(self) -> Iterator[Transaction]:
        yield from self._transaction("driver.begin", "driver.lock_tables")

    def _transaction(self, *begin: str) -> Iterator[Transaction]:
        import psycopg

        from holdfast.store.postgres import migrate as postgres_migrate
        from holdfast.store.postgres.connection import check_server, connect, named, translate_any
        from holdfast.store.postgres.named_queries import NamedQueryTransaction

        try:
            with connect(self._url) as link:
                check_server(link, self._location)
                postgres_migrate.migrate_store(link, self._location)
                self._link: Link = link
                for query in begin:
                    link.execute(named(query))
                try:
                    yield NamedQueryTransaction(link)
                    link.execute(named("driver.commit"))
                finally:
                    link.rollback()
        except (psycopg.Error, UnicodeEncodeError) as e:
            raise translate_any(e, self._location) from e

    def tables(self) -> list[str]:
        return [row[0] for row in self._run("copy_store.list_tables") if row[0] not in ONLY_THERE]

    def columns(self, table: str) -> list[str]:
        return [row[0] for row in self._run("copy_store.list_columns", {"table": table})]

    def rows(self, table: str, columns: Sequence[str]) -> Iterator[tuple[Any, ...]]:
        with self._link.cursor(name="moved") as cursor:
            cursor.itersize = BATCH
            cursor.execute(_filled(self._queries["copy_store.read_rows"], table, columns))
            yield from cursor

    def insert_rows(self, table: str, columns: Sequence[str], rows: Iterator[tuple[Any, ...]]) -> None:
        with (
            self._link.cursor() as cursor,
            cursor.copy(_filled(self._queries["copy_store.insert"], table, columns)) as copied,
        ):
            for row in rows:
                copied.write_row(row)

    def delete_rows(self, table: str) -> None:
        self._link.execute(_filled(self._queries["copy_store.delete_rows"], table))

    def count(self, table: str) -> int:
        row = self._link.execute(_filled(self._queries["copy_store.count"], table)).fetchone()
        assert row is not None
        return int(row[0])

    def identity(self) -> object:
        return self._link.execute(self._queries["driver.get_database_identity"]).fetchone()

    def clock_offset(self) -> int:
        [(theirs,)] = self._link.execute(self._queries["driver.get_time"]).fetchall()
        return int(theirs) - SystemClock().now()

    def get_last_position(self) -> int:
        return int(self._run("copy_store.get_last_position")[0][0])

    def set_last_position(self, position: int) -> None:
        self._run("copy_store.set_last_position", {"position": position})
        for table in ("words", "words_state"):
            self.delete_rows(table)

    def _run(self, query: str, params: dict[str, str | int] | None = None) -> list[tuple[Any, ...]]:
        return self._link.execute(self._queries[query], params).fetchall()
