"""Puts a backup in the place of the store, or leaves the store as it is.

1. The backup is proved: the database's own check and every hash.
2. It is copied to a staging file beside the store, brought to this release's schema, given a new store id (so
   that the search index is built anew), and its workers are buried: who was alive then is not alive now.
3. The present store is saved under a name of its own, and that copy is proved too.
4. The staging file is copied *into* the live database, in one transaction. A file is never swapped under a
   running SQLite: the old WAL would be replayed over the new file, and whoever has it open would go on in the
   old one. Once the write lock is held it is checked again that nobody has written since step 3.
5. The store is proved once more.

A crash before the commit of step 4 leaves the old store, one after it the new one. Only a file that SQLite
cannot open at all is moved aside, with its WAL, instead of being written into.
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
from holdfast.store import backup, files, meta, migrate, private, sqlite_connection, verify, workers
from holdfast.store.backup import Head, Stages, nothing
from holdfast.store.sqlite_connection import SqliteTransaction
from holdfast.store.workers import Worker

Alive = Callable[[Worker], bool]
"""Whether a worker of the store is a process that still runs."""

WORKER_FIELDS = len(Worker.__struct_fields__)


class Restored(msgspec.Struct, frozen=True, kw_only=True):
    """What was done. `saved_as` is where the store that was there before lies now."""

    store_id: str
    sessions: int
    events: int
    saved_as: Path | None
    saved_is_damaged: bool


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """Where to restore to."""

    store: Path
    home: Path
    replace: bool
    """Whether sessions that are there may be replaced; they are saved in any case."""
    alive: Alive
    at: int


class _Present(msgspec.Struct, frozen=True, kw_only=True):
    """The store as it was found."""

    worth_saving: bool = False
    version: int | None = None
    """Changes with every commit of others; None for a file that cannot be read."""


def restore(source: Path, place: Place, on_progress: Stages = nothing) -> Restored:
    """Make the store what the backup is.

    Raises NotFound, Invalid or Corrupt if the backup is not one, Conflict if there are sessions that may not be
    replaced, and Busy while a worker runs or somebody writes. In all these cases nothing has changed.
    """
    refuse_unfit(source, place.store)
    refuse_damaged(source, on_progress)
    files.prepare(place.store)
    staging = place.store.with_name(place.store.name + ".restoring")
    with backup.only_ours(staging):
        try:
            return _restore(source, staging, place, on_progress)
        except apsw.Error as e:
            raise sqlite_connection.translate(e, place.store) from e
        except OSError as e:
            raise private.translate(e, place.store) from e
        finally:
            backup.remove(staging)


def refuse_unfit(source: Path, store: Path) -> None:
    if not source.exists():
        raise NotFound(f"there is no file {source}")
    if not source.is_file():
        raise Invalid(f"{source} is not a file")
    if backup.same_file(source, store):
        raise Invalid(f"{source} is the store itself; name a backup of it")


def refuse_damaged(source: Path, on_progress: Stages) -> None:
    """Raise unless the file is a store of ours whose every hash fits."""
    try:
        with closing(backup.open_copy(source)) as connection:
            found = migrate.check(connection, source, migrate.known())
    except apsw.Error as e:
        raise Corrupt(f"{source} cannot be restored: {e}; nothing was changed") from e
    if found.applied == 0:
        raise Invalid(f"{source} is not a backup of Holdfast's: it is empty")
    report = backup.prove(source, None, current=found.pending == 0, on_progress=on_progress)
    if not report.ok:
        raise Corrupt(f"{source} is damaged and was not restored: {backup.first_fault(report)}")


def _restore(source: Path, staging: Path, place: Place, on_progress: Stages) -> Restored:
    with ExitStack() as stack:
        live, watch = _open(place.store, stack)
        present = _look(watch, place)
        fresh = stack.enter_context(closing(stage(source, staging, on_progress)))
        store_id = make_ready(fresh, staging, place.at)
        heads = verify.heads(SqliteTransaction(fresh))
        saved = _save(watch, place, present, on_progress)
        if live is None or watch is None:
            live, watch = _open(place.store, stack)
            assert live is not None and watch is not None, "the file was moved aside and made anew"
        _put_in(fresh, live, partial(_refuse_changed, watch, place, present), on_progress)
        report = _prove_live(watch, heads, saved)
    return Restored(
        store_id=store_id,
        sessions=report.sessions,
        events=report.events,
        saved_as=saved.path if saved else None,
        saved_is_damaged=saved is not None and not saved.report.ok,
    )


def _open(store: Path, stack: ExitStack) -> tuple[apsw.Connection | None, apsw.Connection | None]:
    """One connection to write and one to watch what others commit; none if the file is not a database any more.

    Both are opened before anything is looked at: opening one may be a commit of its own.
    """
    try:
        live = stack.enter_context(closing(sqlite_connection.connect(store)))
        return live, stack.enter_context(closing(sqlite_connection.connect(store)))
    except (apsw.NotADBError, apsw.CorruptError):
        return None, None


def stage(source: Path, staging: Path, on_progress: Stages) -> apsw.Connection:
    """A copy of the backup that may be changed."""
    with closing(backup.open_copy(source)) as copied:
        backup.copy_pages(copied, source, staging, on_progress=on_progress)
    return sqlite_connection.connect(staging)


def _look(watch: apsw.Connection | None, place: Place) -> _Present:
    """What is in the store's place now. Raises if that may not be replaced."""
    if watch is None:
        if not place.replace:
            raise Conflict(f"{place.store} cannot be read as a store; --replace moves it aside and restores the backup")
        return _Present(worth_saving=True)
    version = _version(watch)
    try:
        if not _is_made(watch, place.store):
            return _Present(version=version)
        _refuse_alive(watch, place)
        holds = f"{verify.count(SqliteTransaction(watch))[0]} sessions"
    except (apsw.CorruptError, UnicodeDecodeError):
        holds = "damaged sessions"
    if holds == "0 sessions":
        return _Present(version=version)
    if not place.replace:
        raise Conflict(
            f"the store {place.store} holds {holds} and was left as it is; --replace saves it under another name first"
        )
    return _Present(worth_saving=True, version=version)


def _version(watch: apsw.Connection) -> int:
    return cast("int", watch.pragma("data_version"))


def _is_made(watch: apsw.Connection, store: Path) -> bool:
    """Whether there is a store at all. Raises Unsupported for a database that is not ours to touch."""
    try:
        return migrate.check(watch, store, migrate.known()).applied > 0
    except Unsupported:
        # A store of a later release is just what one goes back from with a backup.
        if watch.pragma("application_id") != migrate.APPLICATION:
            raise
        return True


def _refuse_alive(connection: apsw.Connection, place: Place) -> None:
    rows = SqliteTransaction(connection).all("workers.alive")
    for row in rows:
        worker = Worker(*row[:WORKER_FIELDS])  # type: ignore[arg-type] # the schema checks the types
        if place.alive(worker):
            raise Busy(
                f"{worker.id} ({worker.kind}, pid {worker.pid} on {worker.host}) is using the store; "
                "stop it and restore again"
            )


def make_ready(fresh: apsw.Connection, staging: Path, at: int) -> str:
    """Turn the staging file into a store that can be used as it is; its new id."""
    migrate.migrate(fresh, staging)
    store_id = secrets.token_hex(8)
    tx = SqliteTransaction(fresh)
    fresh.execute("BEGIN IMMEDIATE")
    meta.put(tx, "store_id", store_id)
    for worker in workers.alive(tx):
        workers.bury(tx, worker.id, "restored", at=at)
    fresh.execute("COMMIT")
    report = verify.verify_copy(tx)
    if not report.ok:
        raise Corrupt(f"the backup could not be made ready and was not restored: {backup.first_fault(report)}")
    return store_id


def _save(watch: apsw.Connection | None, place: Place, present: _Present, on_progress: Stages) -> backup.Copied | None:
    """Keep the present store under a name of its own."""
    if not present.worth_saving:
        return None
    target = free_name(place.home, place.at)
    if watch is not None:
        return backup.copy(watch, place.store, target, sound=False, on_progress=on_progress)
    for end in ("-wal", "-shm", ""):
        file = place.store.with_name(place.store.name + end)
        if file.exists():
            file.rename(target.with_name(target.name + end))
    private.sync_folder(place.home)
    files.prepare(place.store)
    problem = verify.Problem("it cannot be read as a store")
    return backup.Copied(target, target.stat().st_size, verify.Report(problems=[problem]))


def free_name(home: Path, at: int) -> Path:
    """Where to keep a store that is about to be replaced."""
    stem = f"before-restore-{moment(at):%Y%m%dT%H%M%SZ}"
    names = (f"{stem}{f'-{n}' if n > 1 else ''}.db" for n in range(1, 1000))
    return next(path for name in names if not (path := home / name).exists())


def _put_in(fresh: apsw.Connection, live: apsw.Connection, unchanged: Callable[[], None], on_progress: Stages) -> None:
    """Write the new store over the old one, in one transaction."""
    if (ours := fresh.pragma("page_size")) != (theirs := live.pragma("page_size")):
        raise Unsupported(f"the backup has pages of {ours} bytes and the store of {theirs}; it cannot be written over")
    with live.backup("main", fresh, "main") as pages:
        pages.step(1)  # takes the write lock and keeps it
        unchanged()
        while not pages.done:
            pages.step(backup.PAGES)
            on_progress("restoring", pages.page_count - pages.remaining, pages.page_count)
    with suppress(apsw.BusyError):  # somebody still reads; a later checkpoint does it
        live.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)


def _refuse_changed(watch: apsw.Connection, place: Place, present: _Present) -> None:
    if present.version is not None and _version(watch) != present.version:
        raise Busy(f"{place.store} was written to meanwhile; nothing was restored. Try again when nobody uses it")


def _prove_live(watch: apsw.Connection, heads: list[Head], saved: backup.Copied | None) -> verify.Report:
    tx = SqliteTransaction(watch)
    report = verify.verify_copy(tx)
    if report.ok and verify.heads(tx) == heads:
        return report
    fault = "its sessions are not those of the backup" if report.ok else backup.first_fault(report)
    where = f"; what was there before is in {saved.path}" if saved else ""
    raise Corrupt(f"the restored store does not hold what was written to it, check the disk: {fault}{where}")
