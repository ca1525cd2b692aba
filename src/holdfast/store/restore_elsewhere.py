"""Puts a backup in the place of a store that is no file, or leaves that store as it is.

As `restore` does for a file: the backup is proved, made ready beside the home (this release's schema, a new store id, its
workers buried), what the store holds now is saved as a file and that copy looked at, and then everything is replaced in
one transaction of the store, in which the copy is proved again before it is committed. The store is closed to others
meanwhile; if it is no longer what was saved, nothing is restored.
"""

from contextlib import closing
from functools import partial
from pathlib import Path

import msgspec

from holdfast.model.errors import Busy, Conflict
from holdfast.store import backup, restore, sqlite_connection, verify
from holdfast.store.backup import Copied, Head, Stages, nothing
from holdfast.store.database import Transaction
from holdfast.store.move import End, move, refuse_alive
from holdfast.store.move_ends import SqliteEnd
from holdfast.store.restore import Alive, Restored
from holdfast.store.sqlite_connection import SqliteTransaction
from holdfast.store.workers import Worker

STAGING = "holdfast.db.restoring"


class Elsewhere(msgspec.Struct, frozen=True, kw_only=True):
    """Where to restore to. The home is for the files that are made on the way, and for what was there before."""

    store: End
    home: Path
    replace: bool
    alive: Alive
    at: int


def restore_elsewhere(source: Path, place: Elsewhere, on_progress: Stages = nothing) -> Restored:
    """Make the store what the backup is. Raises as `restore` does, and has changed nothing then."""
    restore.refuse_unfit(source, place.home / STAGING)
    restore.refuse_damaged(source, on_progress)
    staging = place.home / STAGING
    staging.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with backup.only_ours(staging):
        try:
            with closing(restore.stage(source, staging, on_progress)) as fresh:
                restore.make_ready(fresh, staging, place.at)
            heads, saved = _save(place, on_progress)
            refuse = partial(_refuse_changed, heads)
            done = move(SqliteEnd(staging), place.store, place.alive, on_progress, refuse=refuse)
        finally:
            backup.remove(staging)
    return Restored(
        store_id=done.store_id,
        sessions=done.sessions,
        events=done.events,
        saved_as=saved.path if saved else None,
        saved_is_damaged=saved is not None and not saved.report.ok,
    )


def _save(place: Elsewhere, on_progress: Stages) -> tuple[list[Head], Copied | None]:
    """Keep what the store holds now under a name of its own. Raises if it may not be replaced."""
    with place.store.reading() as tx:
        refuse_alive(place.store, tx, place.alive)
        count = verify.count(tx)[0]
    if count == 0:
        return [], None
    if not place.replace:
        raise Conflict(
            f"{place.store.place} holds {count} sessions and was left as it is; --replace saves them to a file first"
        )
    target = restore.free_name(place.home, place.at)
    taken = target.with_name(target.name + ".taking")
    with backup.only_ours(taken):
        try:
            move(place.store, SqliteEnd(taken), _nobody, on_progress, sound=False)
            with closing(sqlite_connection.connect(taken)) as copied:
                heads = verify.heads(SqliteTransaction(copied))
                return heads, backup.copy(copied, taken, target, sound=False, on_progress=on_progress)
        finally:
            backup.remove(taken)


def _nobody(worker: Worker) -> bool:
    return False


def _refuse_changed(heads: list[Head], old: Transaction, new: Transaction, target: End) -> None:
    if verify.heads(new) != heads:
        raise Busy(f"{target.place} was written to meanwhile; nothing was restored. Try again when nobody uses it")
