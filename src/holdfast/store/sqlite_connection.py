"""A connection to a SQLite file with the settings every promise rests on, and SQLite's errors as ours."""

import os
import random
import time
from array import array
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import cast

import apsw

from holdfast.model.errors import Corrupt, DiskFull, HoldfastError, Invalid, IoFailed, ReadOnly, Unavailable
from holdfast.store import queries
from holdfast.store.database import Row, Value

BUSY_SECONDS = 60.0
"""How long a writer waits for another process before it gives up and says so."""
INCREMENTAL = 2
PRAGMAS = """
PRAGMA journal_mode = WAL;
PRAGMA synchronous = FULL;
PRAGMA fullfsync = ON;
PRAGMA checkpoint_fullfsync = ON;
PRAGMA foreign_keys = ON;
PRAGMA trusted_schema = OFF;
PRAGMA cell_size_check = ON;
"""


def translate(error: apsw.Error, path: Path) -> HoldfastError:
    """SQLite's error as ours; the one place where that is decided."""
    match error:
        case apsw.FullError():
            return DiskFull(f"the disk is full: nothing was saved to {path}; make room and try again")
        case apsw.CantOpenError() if _may_write(path):
            return IoFailed(
                f"{path} cannot be opened though nobody forbids it: too many files are open, or the disk fails; nothing was saved"
            )
        case apsw.ReadOnlyError() | apsw.PermissionsError() | apsw.CantOpenError() | apsw.AuthError():
            return ReadOnly(f"cannot write to {path}: {error}")
        case apsw.CorruptError() | apsw.NotADBError():
            return Corrupt(
                f"{path} is damaged ({error}). It was left as it is: run 'holdfast doctor', "
                "and 'holdfast restore' with your newest backup"
            )
        case apsw.BusyError() | apsw.LockedError():
            return Unavailable(
                f"{path} has been locked by another process for {BUSY_SECONDS:.0f} s; try again when it is done"
            )
        case apsw.TooBigError():
            return Invalid(f"too large for one row of the store: {error}")
        case _:
            return IoFailed(f"the store {path} failed ({error}): what was being written does not count as saved")


def _may_write(path: Path) -> bool:
    files = (path, *(path.with_name(path.name + end) for end in ("-wal", "-shm")))
    return all(os.access(file, os.R_OK | os.W_OK) for file in (path.parent, *(one for one in files if one.exists())))


def translated(error: BaseException, path: Path) -> BaseException:
    """Ours for SQLite's, with its cause; a broken constraint is a bug of the work, and any other error stays what it is."""
    match error:
        case UnicodeDecodeError():
            ours: Exception = Corrupt(f"{path} holds a text that is not UTF-8: run 'holdfast sessions verify'")
        case UnicodeEncodeError():
            ours = Invalid(
                "a name with lone surrogates cannot be kept: only message texts may hold bytes that are no text"
            )
        case apsw.ConstraintError() | apsw.SQLError() | apsw.MisuseError():
            ours = AssertionError(f"the work does not fit the schema: {error}")
        case apsw.Error():
            ours = translate(error, path)
        case _:
            return error
    ours.__cause__ = error
    return ours


class SqliteTransaction:
    """Named queries on one connection, inside a transaction that somebody else begins and ends."""

    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection
        self._queries = queries.load()
        self.topics: set[str] = set()

    def one(self, query: str, **params: Value) -> Row | None:
        rows = self._connection.execute(self._queries[query], params).fetchall()
        return cast("Row", rows[0]) if rows else None

    def all(self, query: str, **params: Value) -> list[Row]:
        return cast("list[Row]", self._connection.execute(self._queries[query], params).fetchall())

    def run(self, query: str, **params: Value) -> None:
        self._connection.execute(self._queries[query], params).fetchall()

    def count(self, query: str, **params: Value) -> int:
        self._connection.execute(self._queries[query], params).fetchall()
        return self._connection.changes()

    def many(self, query: str, rows: Iterable[Mapping[str, Value]]) -> None:
        self._connection.executemany(self._queries[query], rows).fetchall()

    def notify(self, topic: str) -> None:
        self.topics.add(topic)


class Patience:
    """Waits for another process's lock a few milliseconds at a time; by chance, so that nobody starves."""

    def __init__(self, limit: float) -> None:
        self._limit = limit
        self._since = 0.0

    def __call__(self, tries: int) -> bool:
        now = time.monotonic()
        if tries == 0:
            self._since = now
        elif now - self._since > self._limit:
            return False
        time.sleep(random.uniform(0.0005, min(0.02, 0.001 * (tries + 1))))  # noqa: S311 - chance, not secrecy
        return True


def connect(path: Path, *, busy_seconds: float = BUSY_SECONDS) -> apsw.Connection:
    """A connection with the settings every promise rests on. The file must exist."""
    patience, tries = Patience(busy_seconds), 0
    while True:
        try:
            return _connect(path, busy_seconds)
        except (
            apsw.BusyError
        ):  # SQLite does not wait where two that make a new file a WAL one would wait for each other
            if not patience(tries):
                raise
            tries += 1


def _connect(path: Path, busy_seconds: float) -> apsw.Connection:
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)
    try:
        connection.set_busy_handler(Patience(busy_seconds))
        if connection.pragma("auto_vacuum") != INCREMENTAL:  # setting it is a write, even to what it is already
            connection.pragma("auto_vacuum", INCREMENTAL)
        connection.execute(PRAGMAS).fetchall()
        mode, level = connection.pragma("journal_mode"), connection.pragma("synchronous")
        if (mode, level) != ("wal", 2):
            raise Invalid(f"{path} cannot be kept safe: journal_mode is {mode}, synchronous is {level}")
        # The WAL is kept when the last connection closes: a commit into a file that need not grow takes half the time.
        persist = array("i", [1])
        connection.file_control("main", apsw.SQLITE_FCNTL_PERSIST_WAL, persist.buffer_info()[0])
    except BaseException:
        connection.close(True)
        raise
    return connection
