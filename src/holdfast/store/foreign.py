"""Reads the SQLite file of another program, which may have it open, and never changes it.

Where a WAL or a journal lies beside it, somebody has it open or left it in a hurry: it is read as one more reader, under
SQLite's own locks. Otherwise it is read as a file that nobody changes, because a reader of a WAL database would
leave files of its own beside it; `has_changed` tells if that was wrong.
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
    """Such a file, opened. All methods raise Corrupt for what cannot be read, or Unavailable while it is locked."""

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
        """The rows of a named query, by the names of their columns; whatever columns there are."""
        with self._translated():
            cursor = self._connection.cursor()
            names: list[str] = []
            for row in cursor.execute(queries.load()[query], params):
                names = names or [column[0] for column in cursor.get_description()]
                yield dict(zip(names, row, strict=True))

    def has_changed(self) -> bool:
        """Whether somebody wrote to a file that nobody seemed to use."""
        return not self._is_shared and self._look() != self._state

    def close(self) -> None:
        self._connection.close()

    def _look(self) -> tuple[bool, int, int]:
        """Whether others use it, and only then what it is like: who leaves in between has not changed it behind our back."""
        is_shared = any(self._path.with_name(self._path.name + end).exists() for end in ("-wal", "-journal"))
        found = self._path.stat()
        return is_shared, found.st_size, found.st_mtime_ns

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except (apsw.BusyError, apsw.LockedError) as e:
            raise Unavailable(f"{self._path} is locked by another program; try again when it is done") from e
        except (apsw.Error, UnicodeDecodeError) as e:
            raise Corrupt(f"{self._path} cannot be read: {e}") from e
