"""Opens SQLite connections with the settings that durability needs, and translates SQLite's errors."""

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
"""How long a write waits for the lock of another process before it fails."""
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
    """Our error for an error of SQLite. The only place that decides this."""
    match error:
        case apsw.FullError():
            return DiskFull(f"the disk is full: nothing was saved to {path}; free some space and try again")
        case apsw.CantOpenError() if _may_write(path):
            return IoFailed(
                f"cannot open {path} although permissions allow it: too many open files, or a failing disk; nothing was saved"
            )
        case apsw.ReadOnlyError() | apsw.PermissionsError() | apsw.CantOpenError() | apsw.AuthError():
            return ReadOnly(f"cannot write to {path}: {error}")
        case apsw.CorruptError() | apsw.NotADBError():
            return Corrupt(
                f"{path} is damaged ({error}) and was left unchanged. Run 'holdfast doctor', "
                "then 'holdfast restore' with your newest backup"
            )
        case apsw.BusyError() | apsw.LockedError():
            return Unavailable(f"another process has locked {path} for {BUSY_SECONDS:.0f} s; try again when it is done")
        case apsw.TooBigError():
            return Invalid(f"too large for one row of the store: {error}")
        case _:
            return IoFailed(f"the store {path} failed ({error}); treat the write as not saved")


def _may_write(path: Path) -> bool:
    files = (path, *(path.with_name(path.name + end) for end in ("-wal", "-shm")))
    return all(os.access(file, os.R_OK | os.W_OK) for file in (path.parent, *(one for one in files if one.exists())))


def check_name(path: Path) -> None:
    """Raise Invalid for a path that SQLite cannot open."""
    try:
        str(path).encode()
    except UnicodeEncodeError as e:
        raise Invalid(f"{str(path)!a} has a name that is not valid UTF-8; use another one") from e


def translate_any(error: BaseException, path: Path) -> BaseException:
    """Our error for an error of SQLite, with its cause. A violated constraint is a bug. Other errors are returned unchanged."""
    match error:
        case UnicodeDecodeError():
            ours: Exception = Corrupt(f"{path} contains text that is not UTF-8; run 'holdfast sessions verify'")
        case UnicodeEncodeError():
            ours = Invalid(
                "a name must be UTF-8 text without lone surrogates; only the texts of messages may contain other bytes"
            )
        case apsw.ConstraintError() | apsw.SQLError() | apsw.MisuseError():
            ours = AssertionError(f"the query or its values do not match the schema: {error}")
        case apsw.Error():
            ours = translate(error, path)
        case _:
            return error
    ours.__cause__ = error
    return ours


class SqliteTransaction:
    """Named queries on one connection. The caller begins and ends the transaction."""

    def __init__(self, connection: apsw.Connection) -> None:
        self.connection = connection
        self._queries = queries.load()
        self.topics: set[str] = set()

    def one(self, query: str, **params: Value) -> Row | None:
        rows = self.connection.execute(self._queries[query], params).fetchall()
        return cast("Row", rows[0]) if rows else None

    def all(self, query: str, **params: Value) -> list[Row]:
        return cast("list[Row]", self.connection.execute(self._queries[query], params).fetchall())

    def run(self, query: str, **params: Value) -> None:
        self.connection.execute(self._queries[query], params).fetchall()

    def count(self, query: str, **params: Value) -> int:
        self.connection.execute(self._queries[query], params).fetchall()
        return self.connection.changes()

    def many(self, query: str, rows: Iterable[Mapping[str, Value]]) -> None:
        self.connection.executemany(self._queries[query], rows).fetchall()

    def notify(self, topic: str) -> None:
        self.topics.add(topic)


class LockWait:
    """Waits for the lock of another process in steps of a few milliseconds. The steps are random, so that no process starves."""

    def __init__(self, limit: float) -> None:
        self._limit = limit
        self._since = 0.0

    def __call__(self, tries: int) -> bool:
        now = time.monotonic()
        if tries == 0:
            self._since = now
        elif now - self._since > self._limit:
            return False
        time.sleep(random.uniform(0.0005, min(0.02, 0.001 * (tries + 1))))  # noqa: S311 - not for security
        return True


def connect(path: Path, *, busy_seconds: float = BUSY_SECONDS) -> apsw.Connection:
    """A connection with the settings that durability needs. The file must exist."""
    wait_for_lock, tries = LockWait(busy_seconds), 0
    while True:
        try:
            return _connect(path, busy_seconds)
        except apsw.BusyError:
            # SQLite does not wait when two connections switch a new file to WAL: they would deadlock.
            if not wait_for_lock(tries):
                raise
            tries += 1


def _connect(path: Path, busy_seconds: float) -> apsw.Connection:
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)
    try:
        connection.set_busy_handler(LockWait(busy_seconds))
        if connection.pragma("auto_vacuum") != INCREMENTAL:  # setting it is a write, even if the value is the same
            connection.pragma("auto_vacuum", INCREMENTAL)
        connection.execute(PRAGMAS).fetchall()
        mode, level = connection.pragma("journal_mode"), connection.pragma("synchronous")
        if (mode, level) != ("wal", 2):
            raise Invalid(f"SQLite refuses durable settings for {path}: journal_mode is {mode}, synchronous is {level}")
        # The WAL stays when the last connection closes: a commit to a file that need not grow takes half the time.
        persist = array("i", [1])
        connection.file_control("main", apsw.SQLITE_FCNTL_PERSIST_WAL, persist.buffer_info()[0])
    except BaseException:
        connection.close(True)
        raise
    return connection
