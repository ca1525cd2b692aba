"""Restores a backup, or leaves the store unchanged.

1. The backup is verified: the database's own check and every hash.
2. It is copied to a staging file beside the store, migrated to the schema of this release, and given a new store id (so
   that the search index is rebuilt). Its workers are marked as dead.
3. The present store is saved to a file, which is verified too.
4. The staging file is copied *into* the live database, in one transaction. A file is never replaced under a running
   SQLite: the old WAL would be replayed into the new file, and other processes would keep using the old one. After taking
   the write lock, it is checked again that nothing was written since step 3.
5. The store is verified again.

A crash before the commit of step 4 leaves the old store, a crash after it the new one. Only a file that SQLite cannot
open is moved aside, with its WAL, instead of being overwritten.
"""

import secrets
from collections.abc import Callable
from contextlib import ExitStack, closing, suppress
from functools import partial
from pathlib import Path
from typing import cast

import apsw
import msgspec

from holdfast.model.errors import Busy, Conflict, Corrupt, Invalid, NotFound, Unsupported
from holdfast.model.times import moment
from holdfast.store import atomic_file, durable_file, verify
from holdfast.store.backup import backup
from holdfast.store.backup.backup import BackupProgress, Head, ignore_progress
from holdfast.store.repos import meta, workers
from holdfast.store.repos.workers import Worker
from holdfast.store.sqlite import connection as sqlite_connection
from holdfast.store.sqlite import location, migrate
from holdfast.store.sqlite.connection import SqliteTransaction

Alive = Callable[[Worker], bool]
"""Whether the process of a worker still runs."""

WORKER_FIELDS = len(Worker.__struct_fields__)


class RestoreReport(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a restore. `saved_as` is the file with the previous store."""

    store_id: str
    sessions: int
    events: int
    saved_as: Path | None
    saved_is_damaged: bool


class RestoreTarget(msgspec.Struct, frozen=True, kw_only=True):
    """Where to restore to."""

    store: Path
    home: Path
    replace: bool
    """Whether existing sessions may be replaced; they are saved in any case."""
    alive: Alive
    at: int


class _PresentStore(msgspec.Struct, frozen=True, kw_only=True):
    """The store as it was found."""

    worth_saving: bool = False
    version: int | None = None
    """Changes with every commit of another connection; None for a file that cannot be read."""


def restore(source: Path, destination: RestoreTarget, on_progress: BackupProgress = ignore_progress) -> RestoreReport:
    """Replace the content of the store with the backup.

    Raises NotFound, Invalid or Corrupt if the file is not a sound backup, Conflict if there are sessions that must not be
    replaced, and Busy while a worker runs or another process writes. In all these cases nothing has changed.
    """
    refuse_unusable(source, destination.store)
    refuse_damaged(source, on_progress)
    location.prepare(destination.store)
    staging = destination.store.with_name(destination.store.name + ".restoring")
    with backup.open_exclusively(staging):
        try:
            return _restore(source, staging, destination, on_progress)
        except apsw.Error as e:
            raise sqlite_connection.translate(e, destination.store) from e
        except OSError as e:
            raise atomic_file.translate(e, destination.store) from e
        finally:
            backup.remove(staging)


def refuse_unusable(source: Path, store: Path) -> None:
    sqlite_connection.check_name(source)
    if not source.exists():
        raise NotFound(f"there is no file {source}")
    if not source.is_file():
        raise Invalid(f"{source} is not a file")
    if backup.same_file(source, store):
        raise Invalid(f"{source} is the store itself; give a backup of it")


def refuse_damaged(source: Path, on_progress: BackupProgress) -> None:
    """Raise unless the file is a Holdfast store without damage."""
    try:
        with closing(backup.open_copy(source)) as connection:
            found = migrate.check(connection, source, migrate.known())
    except apsw.Error as e:
        raise Corrupt(f"{source} cannot be restored: {e}; nothing was changed") from e
    if found.applied == 0:
        raise Invalid(f"{source} is not a Holdfast backup: it is empty")
    report = backup.verify_file(source, None, current=found.pending == 0, on_progress=on_progress)
    if not report.ok:
        raise Corrupt(f"{source} is damaged and was not restored: {backup.describe_first_problem(report)}")


def _restore(source: Path, staging: Path, destination: RestoreTarget, on_progress: BackupProgress) -> RestoreReport:
    with ExitStack() as stack:
        live, watch = _open(destination.store, stack)
        present = _inspect(watch, destination)
        restored = stack.enter_context(closing(stage(source, staging, on_progress)))
        store_id = prepare_restored(restored, staging, destination.at)
        heads = verify.list_heads(SqliteTransaction(restored))
        saved = _save(watch, destination, present, on_progress)
        if live is None or watch is None:
            live, watch = _open(destination.store, stack)
            assert live is not None and watch is not None, "the file was moved aside and created again"
        _put_in(restored, live, partial(_refuse_changed, watch, destination, present), on_progress)
        report = _prove_live(watch, heads, saved)
    return RestoreReport(
        store_id=store_id,
        sessions=report.sessions,
        events=report.events,
        saved_as=saved.path if saved else None,
        saved_is_damaged=saved is not None and not saved.report.ok,
    )


def _open(store: Path, stack: ExitStack) -> tuple[apsw.Connection | None, apsw.Connection | None]:
    """A connection to write and one to detect commits of others; None if the file is not a database.

    Both are opened before anything is read: opening one may itself commit.
    """
    try:
        live = stack.enter_context(closing(sqlite_connection.connect(store)))
        return live, stack.enter_context(closing(sqlite_connection.connect(store)))
    except (apsw.NotADBError, apsw.CorruptError):
        return None, None


def stage(source: Path, staging: Path, on_progress: BackupProgress) -> apsw.Connection:
    """A connection to a writable copy of the backup."""
    with closing(backup.open_copy(source)) as copied:
        backup.copy_pages(copied, source, staging, on_progress=on_progress)
    return sqlite_connection.connect(staging)


def _inspect(watch: apsw.Connection | None, destination: RestoreTarget) -> _PresentStore:
    """Look at the present store. Raises if it must not be replaced."""
    if watch is None:
        if not destination.replace:
            raise Conflict(
                f"{destination.store} is not a readable store; --replace moves it aside and restores the backup"
            )
        return _PresentStore(worth_saving=True)
    version = _version(watch)
    try:
        if not _is_made(watch, destination.store):
            return _PresentStore(version=version)
        _refuse_alive(watch, destination)
        content = f"{verify.count(SqliteTransaction(watch))[0]} sessions"
    except (apsw.CorruptError, UnicodeDecodeError):
        content = "damaged sessions"
    if content == "0 sessions":
        return _PresentStore(version=version)
    if not destination.replace:
        raise Conflict(
            f"the store {destination.store} contains {content} and was left unchanged; --replace saves it under another name first"
        )
    return _PresentStore(worth_saving=True, version=version)


def _version(watch: apsw.Connection) -> int:
    return cast("int", watch.pragma("data_version"))


def _is_made(watch: apsw.Connection, store: Path) -> bool:
    """Whether there is a store. Raises Unsupported for a database of another program."""
    try:
        return migrate.check(watch, store, migrate.known()).applied > 0
    except Unsupported:
        # A store of a newer release may be replaced: restoring a backup is how to go back from it.
        if watch.pragma("application_id") != migrate.APPLICATION:
            raise
        return True


def _refuse_alive(connection: apsw.Connection, destination: RestoreTarget) -> None:
    rows = SqliteTransaction(connection).all("workers.list_alive")
    for row in rows:
        worker = Worker(*row[:WORKER_FIELDS])  # type: ignore[arg-type] # the schema checks the types
        if destination.alive(worker):
            raise Busy(
                f"{worker.id} ({worker.kind}, pid {worker.pid} on {worker.host}) is using the store; "
                "stop it and restore again"
            )


def prepare_restored(restored: apsw.Connection, staging: Path, at: int) -> str:
    """Migrate the staging file, give it a new store id and mark its workers as dead; returns the id."""
    migrate.migrate(restored, staging)
    store_id = secrets.token_hex(8)
    tx = SqliteTransaction(restored)
    restored.execute("BEGIN IMMEDIATE")
    meta.put(tx, "store_id", store_id)
    for worker in workers.list_alive(tx):
        workers.mark_dead(tx, worker.id, "restored", at=at)
    restored.execute("COMMIT")
    report = verify.verify_copy(tx)
    if not report.ok:
        raise Corrupt(f"the backup could not be migrated and was not restored: {backup.describe_first_problem(report)}")
    return store_id


def _save(
    watch: apsw.Connection | None, destination: RestoreTarget, present: _PresentStore, on_progress: BackupProgress
) -> backup.BackupFile | None:
    """Save the present store to a file."""
    if not present.worth_saving:
        return None
    target = choose_saved_path(destination.home, destination.at)
    if watch is not None:
        return backup.copy(watch, destination.store, target, must_be_sound=False, on_progress=on_progress)
    for end in ("-wal", "-shm", ""):
        file = destination.store.with_name(destination.store.name + end)
        if file.exists():
            file.rename(target.with_name(target.name + end))
    durable_file.sync_folder(destination.home)
    location.prepare(destination.store)
    problem = verify.VerifyProblem("it is not a readable store")
    return backup.BackupFile(target, target.stat().st_size, verify.VerifyReport(problems=[problem]))


def choose_saved_path(home: Path, at: int) -> Path:
    """An unused path for a store that is about to be replaced."""
    stem = f"before-restore-{moment(at):%Y%m%dT%H%M%SZ}"
    names = (f"{stem}{f'-{n}' if n > 1 else ''}.db" for n in range(1, 1000))
    return next(path for name in names if not (path := home / name).exists())


def _put_in(
    restored: apsw.Connection, live: apsw.Connection, unchanged: Callable[[], None], on_progress: BackupProgress
) -> None:
    """Overwrite the old store with the new one, in one transaction."""
    if (ours := restored.pragma("page_size")) != (theirs := live.pragma("page_size")):
        raise Unsupported(f"the backup has pages of {ours} bytes and the store of {theirs}; it cannot be overwritten")
    with live.backup("main", restored, "main") as pages:
        pages.step(1)  # takes the write lock and keeps it
        unchanged()
        while not pages.done:
            pages.step(backup.PAGES)
            on_progress("restoring", pages.page_count - pages.remaining, pages.page_count)
    with suppress(apsw.BusyError):  # another process still reads; a later checkpoint does it
        live.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)


def _refuse_changed(watch: apsw.Connection, destination: RestoreTarget, present: _PresentStore) -> None:
    if present.version is not None and _version(watch) != present.version:
        raise Busy(
            f"another process wrote to {destination.store}; nothing was restored. Stop all users of the store and try again"
        )


def _prove_live(watch: apsw.Connection, heads: list[Head], saved: backup.BackupFile | None) -> verify.VerifyReport:
    tx = SqliteTransaction(watch)
    report = verify.verify_copy(tx)
    if report.ok and verify.list_heads(tx) == heads:
        return report
    fault = "its sessions differ from those of the backup" if report.ok else backup.describe_first_problem(report)
    where = f"; the previous store is in {saved.path}" if saved else ""
    raise Corrupt(f"the restored store differs from the backup; check the disk: {fault}{where}")
