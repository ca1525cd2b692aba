"""Reads the SQLite file of another program, which may have it open, and never changes it.

If a WAL or a journal exists, another process has the file open or crashed: the file is read under SQLite's locks.
Otherwise it is opened as immutable, because a reader of a WAL database would create files beside it; `has_changed` tells
whether another process wrote to it meanwhile.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

import apsw

from holdfast.model.errors import Corrupt, Unavailable
from holdfast.store import queries

Cell = str | int | float | bytes | None
MAGIC = b"SQLite format 3\x00"
BUSY_MILLIS = 10_000


class ForeignFile:
    """An open file. All methods raise Corrupt if it cannot be read, or Unavailable while it is locked."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._state = self._look()
        self._is_shared = self._state[0]
        how = "mode=ro" if self._is_shared else "immutable=1"
        flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
        with self._translated():
            self._connection = apsw.Connection(f"file:{quote(str(path.resolve()))}?{how}", flags=flags)
            self._connection.set_busy_timeout(BUSY_MILLIS)

    def rows(self, query: str, **params: Cell) -> Iterator[dict[str, Cell]]:
        """The rows of a named query, as dictionaries by column name."""
        with self._translated():
            cursor = self._connection.cursor()
            names: list[str] = []
            for row in cursor.execute(queries.load()[query], params):
                names = names or [column[0] for column in cursor.get_description()]
                yield dict(zip(names, row, strict=True))

    def has_changed(self) -> bool:
        """Whether another process has written to a file that was opened as immutable."""
        return not self._is_shared and self._look() != self._state

    def close(self) -> None:
        self._connection.close()

    def _look(self) -> tuple[bool, int, int]:
        """Whether other processes use it, then size and time. In this order, a process that closes it in between is no change."""
        is_shared = any(self._path.with_name(self._path.name + end).exists() for end in ("-wal", "-journal"))
        found = self._path.stat()
        return is_shared, found.st_size, found.st_mtime_ns

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except (apsw.BusyError, apsw.LockedError) as e:
            raise Unavailable(f"{self._path} is locked by another program; try again later") from e
        except (apsw.Error, UnicodeDecodeError) as e:
            raise Corrupt(f"{self._path} cannot be read: {e}") from e
