"""Backs up a whole SQLite store to one file while other processes use it, and verifies the copy.

SQLite's backup interface copies one snapshot to `FILE.partial`. The copy is verified (the database's own check, every
hash, every head against the snapshot), flushed, and only then renamed. Until then nothing under the name FILE changes; a
crash leaves at most the partial file, which the next backup overwrites. The hashes verify the logs; a digest after the
last page verifies everything else.
"""

import fcntl
import glob
import hashlib
import os
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import apsw
import msgspec

from holdfast.model.errors import Busy, Corrupt, Invalid, NotFound
from holdfast.store import atomic_file, durable_file, verify
from holdfast.store.sqlite import connection as sqlite_connection
from holdfast.store.sqlite import migrate
from holdfast.store.sqlite.connection import SqliteTransaction
from holdfast.store.verify import VerifyReport

PAGES = 2_000
"""About 8 MB per step: small enough for a progress bar and for Ctrl-C."""

BLOCK_BYTES = 1024 * 1024
DIGEST_MARK = b"holdfast backup sha256 "
DIGEST_BYTES = len(DIGEST_MARK) + 64

Head = tuple[str, int, str]
BackupProgress = Callable[[str, int, int], None]
"""Called with the name of the step, how much of it is done, and the total."""


class BackupFile(msgspec.Struct, frozen=True):
    """A finished, durable copy."""

    path: Path
    bytes: int
    report: VerifyReport


def ignore_progress(step: str, done: int, total: int) -> None:
    pass


def backup(
    store: Path, target: Path, *, replace: bool = False, on_progress: BackupProgress = ignore_progress
) -> BackupFile:
    """Copy the store to a file while other processes use it, and verify the copy.

    Raises NotFound without a store, Invalid if the target exists and `replace` is not set or is not a file, and Corrupt if the copy is not
    sound because the store or the disk is damaged.
    """
    if not store.is_file():
        raise NotFound(f"there is no store at {store}; nothing to back up")
    sqlite_connection.check_name(target)
    atomic_file.refuse_existing(target, replace=replace)
    if target.exists() and not target.is_file():
        raise Invalid(f"{target} is a device, a pipe or a socket; give the path of a file")
    if same_file(store, target):
        raise Invalid(f"{target} is the store itself; give another file")
    try:
        with closing(sqlite_connection.connect(store)) as source:
            migrate.check(source, store, migrate.known())
            return copy(source, store, target, must_be_sound=True, on_progress=on_progress)
    except apsw.Error as e:
        raise sqlite_connection.translate(e, store) from e


def copy(
    source: apsw.Connection,
    store: Path,
    target: Path,
    *,
    must_be_sound: bool,
    on_progress: BackupProgress = ignore_progress,
) -> BackupFile:
    """Write the target completely or not at all. Problems raise Corrupt if `must_be_sound` is set, else they are reported."""
    partial = target.with_name(target.name + ".partial")
    with open_exclusively(partial) as descriptor:
        try:
            heads, current = copy_pages(source, store, partial, must_be_sound=must_be_sound, on_progress=on_progress)
            _append_digest(descriptor)
            report = verify_file(partial, heads, current=current, on_progress=on_progress)
            if must_be_sound and not report.ok:
                raise Corrupt(
                    f"the copy of {store} is damaged and was not saved as {target}: {describe_first_problem(report)}"
                )
            os.fsync(descriptor)
            size = os.fstat(descriptor).st_size
            partial.replace(target)
            durable_file.sync_folder(target.parent)
        except OSError as e:
            raise atomic_file.translate(e, target) from e
        finally:
            remove(partial)
    return BackupFile(target, size, report)


@contextmanager
def open_exclusively(path: Path) -> Iterator[int]:
    """Open an empty file, readable only by its owner, that no second process writes. Leftovers of a crash are overwritten.

    The descriptor stays open to the end: closing a descriptor of a database file drops SQLite's locks on it.
    """
    try:
        descriptor = os.open(path, os.O_CREAT | os.O_RDWR, atomic_file.MODE)
    except OSError as e:
        raise atomic_file.translate(e, path) from e
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        with suppress(OSError):  # a file system without owners has no permissions
            os.fchmod(descriptor, atomic_file.MODE)
        os.ftruncate(descriptor, 0)
        _remove_beside(path)
        yield descriptor
    except BlockingIOError as e:
        raise Busy(f"another process is writing {path}; wait until it is done") from e
    finally:
        os.close(descriptor)


def copy_pages(
    source: apsw.Connection,
    store: Path,
    target: Path,
    *,
    must_be_sound: bool = True,
    on_progress: BackupProgress = ignore_progress,
) -> tuple[list[Head] | None, bool]:
    """Copy one snapshot to an empty file; returns its heads, and whether its schema is that of this release."""
    try:
        with closing(apsw.Connection(str(target), flags=apsw.SQLITE_OPEN_READWRITE)) as copied:
            # The file is not used before it is verified and flushed, so it needs no journal.
            copied.execute("PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF").fetchall()
            # One read transaction for all steps, so that writes of other processes do not restart the copy.
            source.execute("BEGIN")
            try:
                current = migrate.status(source, migrate.known()).pending == 0
                heads = _heads(source, must_be_sound=must_be_sound)
                _copy_all(source, copied, on_progress)
            finally:
                source.execute("ROLLBACK")
            # A backup is one file; in WAL mode, opening it would need two more.
            copied.execute("PRAGMA journal_mode = DELETE").fetchall()
    except (apsw.CorruptError, apsw.NotADBError, apsw.BusyError) as e:
        raise sqlite_connection.translate(e, store) from e
    except apsw.Error as e:
        raise sqlite_connection.translate(e, target) from e
    except UnicodeDecodeError as e:
        raise Corrupt(f"{store} is damaged: it contains unreadable text") from e
    return heads, current


def _heads(source: apsw.Connection, *, must_be_sound: bool) -> list[Head] | None:
    """The heads that the copy must have; None if the store is too damaged to read them."""
    try:
        return verify.list_heads(SqliteTransaction(source))
    except (apsw.CorruptError, UnicodeDecodeError):
        if must_be_sound:
            raise
        return None


def _copy_all(source: apsw.Connection, copied: apsw.Connection, on_progress: BackupProgress) -> None:
    with copied.backup("main", source, "main") as pages:
        while not pages.done:
            pages.step(PAGES)
            on_progress("copying", pages.page_count - pages.remaining, pages.page_count)


def verify_file(
    path: Path, heads: list[Head] | None, *, current: bool, on_progress: BackupProgress = ignore_progress
) -> VerifyReport:
    """Verify a copy, and its heads if they are given."""
    if not has_valid_digest(path):
        return VerifyReport(problems=[verify.VerifyProblem("its bytes have changed: the digest does not match")])
    try:
        with closing(open_copy(path)) as connection:
            tx = SqliteTransaction(connection)
            report = verify.verify_copy(
                tx, summaries=current, on_progress=lambda done, total: on_progress("checking", done, total)
            )
            if heads is not None and verify.list_heads(tx) != heads:
                report.problems.append(verify.VerifyProblem("its sessions differ from those of the snapshot"))
    except (apsw.Error, UnicodeDecodeError) as e:
        return VerifyReport(problems=[verify.VerifyProblem(f"it cannot be read: {e}")])
    return report


def _append_digest(descriptor: int) -> None:
    """Append the digest of all bytes, where SQLite does not read."""
    size = os.lseek(descriptor, 0, os.SEEK_END)
    digest_line = DIGEST_MARK + _digest(descriptor, size).encode("ascii")
    while digest_line:
        digest_line = digest_line[os.write(descriptor, digest_line) :]


def has_valid_digest(path: Path) -> bool:
    """Whether the bytes match the digest at the end; True also for a file without one."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        size = os.lseek(descriptor, 0, os.SEEK_END) - DIGEST_BYTES
        digest_line = os.pread(descriptor, DIGEST_BYTES, max(size, 0))
        if not digest_line.startswith(DIGEST_MARK):
            return True
        return digest_line == DIGEST_MARK + _digest(descriptor, size).encode("ascii")
    finally:
        os.close(descriptor)


def _digest(descriptor: int, size: int) -> str:
    digest = hashlib.sha256()
    for at in range(0, size, BLOCK_BYTES):
        digest.update(os.pread(descriptor, min(BLOCK_BYTES, size - at), at))
    return digest.hexdigest()


def open_copy(path: Path) -> apsw.Connection:
    """A read-only connection, also for a file in a read-only directory."""
    uri = f"{path.absolute().as_uri()}?mode=ro"
    connection = apsw.Connection(uri, flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI)
    connection.execute("PRAGMA cell_size_check = ON; PRAGMA trusted_schema = OFF").fetchall()
    return connection


def describe_first_problem(report: VerifyReport) -> str:
    """The first problem, and the number of further ones."""
    problem, more = report.problems[0], len(report.problems) - 1
    where = f"session {problem.session_id}: " if problem.session_id else ""
    return f"{where}{problem.what}{f' (and {more} more)' if more else ''}"


def same_file(one: Path, other: Path) -> bool:
    return one.exists() and other.exists() and one.samefile(other)


def remove(path: Path) -> None:
    """Remove a temporary database and the files that SQLite and a migration created beside it."""
    path.unlink(missing_ok=True)
    _remove_beside(path)


def _remove_beside(path: Path) -> None:
    for end in ("-journal", "-wal", "-shm"):
        path.with_name(path.name + end).unlink(missing_ok=True)
    for kept in path.parent.glob(f"{glob.escape(path.name)}.before-*"):
        kept.unlink()
