"""Detects that the files of an open SQLite store were removed or replaced, and saves what only the open files contain.

An open file outlives its directory entry. Without this check, SQLite would keep committing into files that no other process can
open and that are gone after a restart. The check compares device and inode of each path with those at opening: it must
not open the files, because closing any descriptor of a database drops all POSIX locks of the process on it.

While a connection is open, SQLite itself never removes or recreates these files: deleting the WAL needs an exclusive
lock on the database, and truncating it keeps the inode.
"""

import logging
import os
import struct
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw

from holdfast.model.errors import IoFailed, Unavailable
from holdfast.store import durable_file
from holdfast.store.sqlite.connection import LockWait
from holdfast.store.sqlite.location import RESCUED

log = logging.getLogger(__name__)

RESCUE_SECONDS = 5.0
"""How long the checkpoint that saves a removed WAL waits for readers."""

FRESH_SECONDS = 0.05
"""How long a check before a read or a write stays valid. The check after a commit is always made."""

AT_FDCWD, STATX_INO = -100, 0x100
STATX = struct.Struct("=32xQ96xII112x")
"""Of the structure that `statx` fills: the inode, and the major and minor number of the device."""
FIRST_LOOKUPS = 64
"""Lookups by `os.stat` before `statx` is used: a short command does not load `ctypes`."""

Identity = tuple[int, int]


class StoreFiles:
    """The database, its WAL and its shared memory as they were when the store was opened. Thread-safe."""

    def __init__(self, path: Path) -> None:
        """Must be called after a connection was opened: that creates the WAL."""
        self.path = path
        self._identity = IdentityLookup()
        real = os.path.realpath(path)  # SQLite puts the WAL beside the file, not beside a link to it
        self._wal = f"{real}-wal"
        self._files = {file: self._identity(file) for file in (str(path), self._wal, f"{real}-shm")}
        self._folder = self._identity(str(path.parent))
        self._checked_at = 0.0
        self._replaced: str | None = None
        """The path at which another file was found. Other processes may have written to it, so the store must be reopened."""
        if missing := [file for file, identity in self._files.items() if identity is None]:
            raise Unavailable(f"{missing[0]} was removed while the store was being opened; try again")

    def changed(self) -> str | None:
        """The path of a file that is not the one that is open; None while all are in place.

        A file that was moved away and back is in place again.
        """
        if self._replaced is not None:
            return self._replaced
        for file, opened in self._files.items():
            found = self._identity(file)
            if found == opened:
                continue
            if found is not None:
                self._replaced = file
            return file
        self._checked_at = time.monotonic()
        return None

    def refuse_changed(self, *, recently: bool = True) -> None:
        """Raise Unavailable if a file is not the one that is open; `recently` trusts a check of a moment ago."""
        if recently and time.monotonic() - self._checked_at < FRESH_SECONDS:
            return
        if (file := self.changed()) is not None:
            raise Unavailable(f"{self._what(file)}, so reads and writes are refused; {self._remedy()}")

    def doubt_commit(self) -> IoFailed | None:
        """The error for writes that were committed just before a file was found to be changed."""
        if (file := self.changed()) is None:
            return None
        return IoFailed(f"{self._what(file)}; treat the write as not saved; {self._remedy()}")

    def rescue(self, connection: apsw.Connection) -> bool:
        """Save acknowledged data that is only in files without a directory entry, and log what was done. False if that failed."""
        file = self.changed()
        if file is None:
            return True
        log.error("%s; %s", self._what(file), self._remedy())
        try:
            self._rescue(connection)
        except (apsw.Error, OSError):
            log.exception("the data in the open files of %s could not be saved", self.path)
            return False
        return True

    def close(self, connection: apsw.Connection) -> None:
        """Close a connection. The last one checkpoints the WAL, unless the files in the directory are not those of the store."""
        if self.changed() is not None:
            connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        connection.close()

    def _rescue(self, connection: apsw.Connection) -> None:
        database, wal = str(self.path), self._wal
        found = {file: self._identity(file) for file in self._files}
        if self._identity(str(self.path.parent)) != self._folder:
            log.error(
                "the directory %s was moved or removed; the files of the store were left unchanged", self.path.parent
            )
        elif found[database] == self._files[database] and found[wal] == self._files[wal]:
            log.error("the database and the WAL of %s are complete; restart to use them", self.path)
        elif found[database] == self._files[database] and found[wal] is None and self._replaced is None:
            self._move_wal(connection)
        else:
            self._copy(connection)

    def _move_wal(self, connection: apsw.Connection) -> None:
        """Checkpoint the removed WAL into the database. Only if there is no other WAL: two would overwrite each other."""
        connection.set_busy_handler(LockWait(RESCUE_SECONDS))
        frames, moved = connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_FULL)
        if moved < frames:
            raise OSError(f"only {moved} of {frames} pages of the removed WAL could be moved into {self.path}")
        log.error("the content of the removed WAL was moved into %s: nothing acknowledged is lost", self.path)

    def _copy(self, connection: apsw.Connection) -> None:
        """Write everything in the open files to a file beside the store. A person must decide which of the two to keep."""
        number = 1
        while (copy := self.path.with_name(f"{self.path.name}{RESCUED}{number}")).exists():
            number += 1
        part = copy.with_name(f"{copy.name}.part")
        part.unlink(missing_ok=True)
        os.close(os.open(part, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        connection.execute("VACUUM INTO ?", (str(part),))
        durable_file.rename(part, copy)
        log.error("all data acknowledged so far was saved as %s", copy)

    def _what(self, file: str) -> str:
        how = "was replaced by another file" if self._replaced is not None else "was removed or moved"
        return f"{file} {how} while the store was open"

    def _remedy(self) -> str:
        return "put it back or restart this process; the log file reports what was saved"


class IdentityLookup:
    """Returns the identity of a file; None if it is missing. Uses `statx` once it is called often."""

    def __init__(self) -> None:
        self._calls = 0
        self._look_up: Callable[[str], Identity | None] = _look_up_by_stat

    def __call__(self, file: str) -> Identity | None:
        self._calls += 1
        if self._calls == FIRST_LOOKUPS:
            self._look_up = choose_lookup(file)
        return self._look_up(file)


def choose_lookup(path: str, library: Any = None) -> Callable[[str], Identity | None]:
    """`statx` without times where the C library and the kernel have it, otherwise `os.stat`. `library` is the C library.

    `os.stat` reads the times too. Linux from 6.13 on therefore gives the file a new, exact time at its next write and
    journals it: each commit to the WAL would take up to a quarter longer.
    """
    import ctypes

    libc = library or ctypes.CDLL(None)

    def look_up(file: str) -> Identity | None:
        result = ctypes.create_string_buffer(STATX.size)
        if libc.statx(AT_FDCWD, os.fsencode(file), 0, STATX_INO, result) != 0:
            return None
        inode, major, minor = STATX.unpack(result)
        return os.makedev(major, minor), inode

    try:
        works = look_up(path) == _look_up_by_stat(path)
    except AttributeError:
        works = False
    return look_up if works else _look_up_by_stat


def _look_up_by_stat(file: str) -> Identity | None:
    try:
        found = os.stat(file)  # noqa: PTH116 - on every commit; a Path would cost as much again
    except OSError:
        return None
    return found.st_dev, found.st_ino
