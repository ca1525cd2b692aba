"""A copy of a whole SQLite store in one file: made while others use it, and proved before it counts.

SQLite's backup interface copies one snapshot into `FILE.partial`, which is then proved (the database's own
check, every hash, every head against the snapshot), flushed, and only then renamed. Until the rename
nothing under the name FILE has changed; a crash leaves at most the partial file, which the next backup
overwrites. The hashes prove the logs; a digest behind the last page proves everything else.
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
from holdfast.store import migrate, private, sqlite_connection, verify
from holdfast.store.sqlite_connection import SqliteTransaction
from holdfast.store.verify import Report

PAGES = 2_000
"""About 8 MB a step: often enough for a progress bar and for Ctrl-C."""

BLOCK_BYTES = 1024 * 1024
SEAL = b"holdfast backup sha256 "
SEAL_BYTES = len(SEAL) + 64

Head = tuple[str, int, str]
Stages = Callable[[str, int, int], None]
"""Told what is being done, how much of it is done, and how much there is."""


class Copied(msgspec.Struct, frozen=True):
    """A finished copy, flushed to the disk."""

    path: Path
    bytes: int
    report: Report


def nothing(stage: str, done: int, total: int) -> None:
    pass


def backup(store: Path, target: Path, *, replace: bool = False, on_progress: Stages = nothing) -> Copied:
    """Copy the store to a file while others go on using it; what is there when this returns has been proved.

    Raises NotFound without a store, Invalid if the target exists and may not be replaced, Corrupt if the
    copy cannot be proved, because the store itself or the disk is damaged.
    """
    if not store.is_file():
        raise NotFound(f"there is no store at {store} yet, so there is nothing to back up")
    private.refuse_existing(target, replace=replace)
    if same_file(store, target):
        raise Invalid(f"{target} is the store itself; name another file")
    try:
        with closing(sqlite_connection.connect(store)) as source:
            migrate.check(source, store, migrate.known())
            return copy(source, store, target, sound=True, on_progress=on_progress)
    except apsw.Error as e:
        raise sqlite_connection.translate(e, store) from e


def copy(source: apsw.Connection, store: Path, target: Path, *, sound: bool, on_progress: Stages = nothing) -> Copied:
    """Write the target, whole or not at all. What is wrong with it raises Corrupt if it must be sound, else is reported."""
    partial = target.with_name(target.name + ".partial")
    with only_ours(partial) as descriptor:
        try:
            heads, current = copy_pages(source, store, partial, sound=sound, on_progress=on_progress)
            _seal(descriptor)
            report = prove(partial, heads, current=current, on_progress=on_progress)
            if sound and not report.ok:
                raise Corrupt(f"nothing was saved as {target}: the copy of {store} has faults; {first_fault(report)}")
            os.fsync(descriptor)
            size = os.fstat(descriptor).st_size
            partial.replace(target)
            private.sync_folder(target.parent)
        except OSError as e:
            raise private.translate(e, target) from e
        finally:
            remove(partial)
    return Copied(target, size, report)


@contextmanager
def only_ours(path: Path) -> Iterator[int]:
    """A private, empty file that no second process writes at the same time. What a dead one left is overwritten.

    The descriptor stays open to the end: closing one of a database's file drops SQLite's locks on it.
    """
    try:
        descriptor = os.open(path, os.O_CREAT | os.O_RDWR, private.MODE)
    except OSError as e:
        raise private.translate(e, path) from e
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        with suppress(OSError):  # a file system without owners has no modes either
            os.fchmod(descriptor, private.MODE)
        os.ftruncate(descriptor, 0)
        _remove_beside(path)
        yield descriptor
    except BlockingIOError as e:
        raise Busy(f"another process is writing {path} right now; wait for it") from e
    finally:
        os.close(descriptor)


def copy_pages(
    source: apsw.Connection, store: Path, target: Path, *, sound: bool = True, on_progress: Stages = nothing
) -> tuple[list[Head] | None, bool]:
    """Copy one snapshot into an empty file; the heads it has, and whether its schema is this release's."""
    try:
        with closing(apsw.Connection(str(target), flags=apsw.SQLITE_OPEN_READWRITE)) as copied:
            # The file is worth nothing until it is proved and flushed, so it needs no journal of its own.
            copied.execute("PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF").fetchall()
            # One read transaction over all steps: whoever writes meanwhile does not make the copy start again.
            source.execute("BEGIN")
            try:
                current = migrate.status(source, migrate.known()).pending == 0
                heads = _heads(source, sound=sound)
                _copy_all(source, copied, on_progress)
            finally:
                source.execute("ROLLBACK")
            # A backup is one file: in WAL mode it would need two more to be opened.
            copied.execute("PRAGMA journal_mode = DELETE").fetchall()
    except (apsw.CorruptError, apsw.NotADBError, apsw.BusyError) as e:
        raise sqlite_connection.translate(e, store) from e
    except apsw.Error as e:
        raise sqlite_connection.translate(e, target) from e
    except UnicodeDecodeError as e:
        raise Corrupt(f"{store} is damaged: it holds text that cannot be read") from e
    return heads, current


def _heads(source: apsw.Connection, *, sound: bool) -> list[Head] | None:
    """The heads the copy must have; None if a damaged store cannot even tell those."""
    try:
        return verify.heads(SqliteTransaction(source))
    except (apsw.CorruptError, UnicodeDecodeError):
        if sound:
            raise
        return None


def _copy_all(source: apsw.Connection, copied: apsw.Connection, on_progress: Stages) -> None:
    with copied.backup("main", source, "main") as pages:
        while not pages.done:
            pages.step(PAGES)
            on_progress("copying", pages.page_count - pages.remaining, pages.page_count)


def prove(path: Path, heads: list[Head] | None, *, current: bool, on_progress: Stages = nothing) -> Report:
    """Check a copy by itself and, if given, against the heads it must have."""
    if not is_unbroken(path):
        return Report(problems=[verify.Problem("its bytes are not those that were written; the digest does not fit")])
    try:
        with closing(open_copy(path)) as connection:
            tx = SqliteTransaction(connection)
            report = verify.verify_copy(
                tx, summaries=current, on_progress=lambda done, total: on_progress("checking", done, total)
            )
            if heads is not None and verify.heads(tx) != heads:
                report.problems.append(verify.Problem("its sessions are not those the store had at that moment"))
    except (apsw.Error, UnicodeDecodeError) as e:
        return Report(problems=[verify.Problem(f"it cannot be read: {e}")])
    return report


def _seal(descriptor: int) -> None:
    """Write the digest of all bytes so far behind them, where SQLite does not look."""
    size = os.lseek(descriptor, 0, os.SEEK_END)
    seal = SEAL + _digest(descriptor, size).encode("ascii")
    while seal:
        seal = seal[os.write(descriptor, seal) :]


def is_unbroken(path: Path) -> bool:
    """Whether every byte is as it was when the copy was sealed; True also for one that never was."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        size = os.lseek(descriptor, 0, os.SEEK_END) - SEAL_BYTES
        seal = os.pread(descriptor, SEAL_BYTES, max(size, 0))
        if not seal.startswith(SEAL):
            return True
        return seal == SEAL + _digest(descriptor, size).encode("ascii")
    finally:
        os.close(descriptor)


def _digest(descriptor: int, size: int) -> str:
    digest = hashlib.sha256()
    for at in range(0, size, BLOCK_BYTES):
        digest.update(os.pread(descriptor, min(BLOCK_BYTES, size - at), at))
    return digest.hexdigest()


def open_copy(path: Path) -> apsw.Connection:
    """A file that is only read, and that may lie where nothing can be written."""
    uri = f"{path.absolute().as_uri()}?mode=ro"
    connection = apsw.Connection(uri, flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI)
    connection.execute("PRAGMA cell_size_check = ON; PRAGMA trusted_schema = OFF").fetchall()
    return connection


def first_fault(report: Report) -> str:
    """The first problem in words, and how many more there are."""
    problem, more = report.problems[0], len(report.problems) - 1
    where = f"session {problem.session_id}: " if problem.session_id else ""
    return f"{where}{problem.what}{f' (and {more} more)' if more else ''}"


def same_file(one: Path, other: Path) -> bool:
    return one.exists() and other.exists() and one.samefile(other)


def remove(path: Path) -> None:
    """Remove a scratch database and all that SQLite and a migration put beside it."""
    path.unlink(missing_ok=True)
    _remove_beside(path)


def _remove_beside(path: Path) -> None:
    for end in ("-journal", "-wal", "-shm"):
        path.with_name(path.name + end).unlink(missing_ok=True)
    for kept in path.parent.glob(f"{glob.escape(path.name)}.before-*"):
        kept.unlink()
