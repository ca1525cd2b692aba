"""Reads all of a PostgreSQL store to find damage.

PostgreSQL reports a damaged page only to the query that reads it. So the check reads every table and scans every B-tree
index. Other indexes serve only the search and are not checked.
"""

import threading
from collections.abc import Callable

import psycopg

from holdfast.store.postgres.connection import Link, break_connection, named, translate

DAMAGED = ("XX001", "XX002")
"""SQLSTATEs of corrupted data and of a corrupted index."""


def is_damage(error: BaseException | None) -> bool:
    return isinstance(error, psycopg.Error) and error.sqlstate in DAMAGED


class PostgresCheck:
    """One check at a time. `connect` raises psycopg's errors."""

    def __init__(self, connect: Callable[[], Link], where: str) -> None:
        self._connect = connect
        self._where = where
        self._lock = threading.Lock()
        self._link: Link | None = None
        self._stopped = False

    def run(self) -> str | None:
        """The damage of the store, or None. Blocks. Raises our errors if the store is unavailable."""
        try:
            with self._connect() as link:
                with self._lock:
                    self._link = link
                    if self._stopped:
                        return None
                self._read_all(link)
        except psycopg.Error as e:
            ours = translate(e, self._where)
            if is_damage(e):
                return str(ours)
            raise ours from e
        finally:
            self._link = None
        return None

    def stop(self) -> None:
        """Stop a running check. Thread-safe."""
        with self._lock:
            self._stopped = True
            if self._link is not None and not self._link.closed:
                break_connection(self._link)

    def _read_all(self, link: Link) -> None:
        # The names are safe to insert: they come from the server's catalog of our schema.
        for (table,) in link.execute(named("copy_store.list_tables")).fetchall():
            link.execute(named("driver.read_table").format(table=table))
        link.execute(named("driver.use_indexes"))
        for table, columns, condition in link.execute(named("driver.list_indexes")).fetchall():
            link.execute(named("driver.read_index").format(table=table, columns=columns, condition=condition))
