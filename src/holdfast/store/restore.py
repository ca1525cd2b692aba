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
from pathlib import Path
from typing import cast

import apsw
import msgspec

from holdfast.model.errors import Busy, Conflict, Corrupt, Invalid, NotFound, Unsupported
from holdfast.model.times import moment
from holdfast.store import backup, files, meta, migrate, private, sqlite, verify, workers
from holdfast.store.backup import Head, Stages, nothing
from holdfast.store.sqlite import SqliteTransaction
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

    readable: bool = True
    sessions: int = 0
    version: int = 0
    """Changes with every commit of others."""


def restore(source: Path, place: Place, on_progress: Stages = nothing) -> Restored:
    """Make the store what the backup is.

    Raises NotFound, Invalid or Corrupt if the backup is not one, Conflict if there are sessions that may not be
    replaced, and Busy while a worker runs or somebody writes. In all these cases nothing has changed.
    """
    _refuse_unfit(source, place.store)
    _refuse_damaged(source, on_progress)
    files.prepare(place.store)
    staging = place.store.with_name(place.store.name + ".restoring")
    with backup.only_ours(staging):
        try:
            return _restore(source, staging, place, on_progress)
        except apsw.Error as e:
            raise sqlite.translate(e, place.store) from e
        except OSError as e:
            raise private.translate(e, place.store) from e
        finally:
            backup.remove(staging)


def _refuse_unfit(source: Path, store: Path) -> None:
    if not source.exists():
        raise NotFound(f"there is no file {source}")
    if not source.is_file():
        raise Invalid(f"{source} is not a file")
    if backup.same_file(source, store):
        raise Invalid(f"{source} is the store itself; name a backup of it")


def _refuse_damaged(source: Path, on_progress: Stages) -> None:
    """Raise unless the file is a store of ours whose every hash fits."""
    migrations = migrate.known()
    try:
        connection = backup.open_copy(source)
        try:
            found = migrate.check(connection, source, migrations)
        finally:
            connection.close()
    except apsw.Error as e:
        raise Corrupt(f"{source} cannot be restored: {e}; nothing was changed") from e
    if found.applied == 0:
        raise Invalid(f"{source} is not a backup of Holdfast's: it is empty")
    report = backup.prove(source, None, current=found.pending == 0, on_progress=on_progress)
    if not report.ok:
        raise Corrupt(f"{source} is damaged and was not restored: {backup.first_fault(report)}")


def _restore(source: Path, staging: Path, place: Place, on_progress: Stages) -> Restored:
    present = _look(place)
    backup.copy_pages(source, staging, on_progress, live=False)
    fresh = sqlite.connect(staging)
    try:
        store_id = _make_ready(fresh, staging, place.at)
        tx = SqliteTransaction(fresh)
        heads = verify.heads(tx)
        saved = _save(place, present, on_progress)
        _put_in(fresh, place, present, on_progress)
    finally:
        fresh.close()
    report = _prove_live(place.store, heads, saved)
    return Restored(
        store_id=store_id,
        sessions=report.sessions,
        events=report.events,
        saved_as=saved.path if saved else None,
        saved_is_damaged=saved is not None and not saved.report.ok,
    )


def _look(place: Place) -> _Present:
    """What is in the store's place now. Raises if that may not be replaced."""
    try:
        connection = sqlite.connect(place.store)
    except (apsw.NotADBError, apsw.CorruptError):
        present = _Present(readable=False)
    else:
        try:
            present = _count(connection, place)
        finally:
            connection.close()
    if not place.replace and not present.readable:
        raise Conflict(f"{place.store} cannot be read as a store; --replace moves it aside and restores the backup")
    if not place.replace and present.sessions:
        raise Conflict(
            f"the store {place.store} holds {present.sessions} sessions and was left as it is; "
            "--replace saves it under another name first"
        )
    return present


def _count(connection: apsw.Connection, place: Place) -> _Present:
    try:
        applied = migrate.check(connection, place.store, migrate.known()).applied
    except Unsupported:
        # A store of a later release is what one goes back from with a backup; any other database is not ours to touch.
        if connection.pragma("application_id") != migrate.APPLICATION:
            raise
        applied = 1
    if applied == 0:
        return _Present()
    _refuse_alive(connection, place)
    count, _ = verify.count(SqliteTransaction(connection))
    return _Present(sessions=count)


def _refuse_alive(connection: apsw.Connection, place: Place) -> None:
    rows = SqliteTransaction(connection).all("workers.alive")
    for row in rows:
        worker = Worker(*row[:WORKER_FIELDS])  # type: ignore[arg-type] # the schema checks the types
        if place.alive(worker):
            raise Busy(
                f"{worker.id} ({worker.kind}, pid {worker.pid} on {worker.host}) is using the store; "
                "stop it and restore again"
            )


def _make_ready(fresh: apsw.Connection, staging: Path, at: int) -> str:
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


def _save(place: Place, present: _Present, on_progress: Stages) -> backup.Copied | None:
    """Keep the present store under a name of its own."""
    if present.readable and not present.sessions:
        return None
    stem = f"before-restore-{moment(place.at):%Y%m%dT%H%M%SZ}"
    names = (f"{stem}{f'-{n}' if n > 1 else ''}.db" for n in range(1, 1000))
    target = next(path for name in names if not (path := place.home / name).exists())
    if present.readable:
        return backup.copy(place.store, target, sound=False, on_progress=on_progress)
    for end in ("-wal", "-shm", ""):
        file = place.store.with_name(place.store.name + end)
        if file.exists():
            file.rename(target.with_name(target.name + end))
    private.sync_folder(place.home)
    files.prepare(place.store)
    problem = verify.Problem("it cannot be read as a store")
    return backup.Copied(target, target.stat().st_size, verify.Report(problems=[problem]))


def _put_in(fresh: apsw.Connection, place: Place, present: _Present, on_progress: Stages) -> None:
    live = sqlite.connect(place.store)
    watch = sqlite.connect(place.store)
    try:
        with live.backup("main", fresh, "main") as pages:
            pages.step(1)  # takes the write lock and keeps it
            _refuse_changed(watch, place, present)
            while not pages.done:
                pages.step(backup.PAGES)
                on_progress("restoring", pages.page_count - pages.remaining, pages.page_count)
        live.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
    finally:
        watch.close()
        live.close()
