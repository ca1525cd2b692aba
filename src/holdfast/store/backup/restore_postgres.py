"""Restores a backup to a PostgreSQL store, or leaves the store unchanged.

Like `restore` for a file: the backup is verified and prepared in the home directory (schema of this release, new store id,
workers marked as dead). The present content is saved to a file, which is verified. Then everything is replaced in one
transaction of the store, which verifies the copy again before it commits. The store is locked meanwhile; if it has changed
since it was saved, nothing is restored.
"""

from contextlib import closing
from functools import partial
from pathlib import Path

import msgspec

from holdfast.model.errors import Busy, Conflict
from holdfast.store import verify
from holdfast.store.backup import backup, restore
from holdfast.store.backup.backup import BackupFile, BackupProgress, Head, ignore_progress
from holdfast.store.backup.copy_store import StoreEndpoint, copy_store, refuse_alive
from holdfast.store.backup.endpoints import SqliteEndpoint
from holdfast.store.backup.restore import Alive, RestoreReport
from holdfast.store.database import Transaction
from holdfast.store.repos.workers import Worker
from holdfast.store.sqlite import connection
from holdfast.store.sqlite.connection import SqliteTransaction

STAGING = "holdfast.db.restoring"


class PostgresRestoreTarget(msgspec.Struct, frozen=True, kw_only=True):
    """Where to restore to. `home` is for temporary files and for the saved present content."""

    store: StoreEndpoint
    home: Path
    replace: bool
    alive: Alive
    at: int


def restore_to_postgres(
    source: Path, destination: PostgresRestoreTarget, on_progress: BackupProgress = ignore_progress
) -> RestoreReport:
    """Replace the content of the store with the backup. Raises as `restore` does; then nothing has changed."""
    restore.refuse_unusable(source, destination.home / STAGING)
    restore.refuse_damaged(source, on_progress)
    staging = destination.home / STAGING
    staging.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with backup.open_exclusively(staging):
        try:
            with closing(restore.stage(source, staging, on_progress)) as restored:
                restore.prepare_restored(restored, staging, destination.at)
            heads, saved = _save(destination, on_progress)
            refuse = partial(_refuse_changed, heads)
            done = copy_store(SqliteEndpoint(staging), destination.store, destination.alive, on_progress, refuse=refuse)
        finally:
            backup.remove(staging)
    return RestoreReport(
        store_id=done.store_id,
        sessions=done.sessions,
        events=done.events,
        saved_as=saved.path if saved else None,
        saved_is_damaged=saved is not None and not saved.report.ok,
    )


def _save(destination: PostgresRestoreTarget, on_progress: BackupProgress) -> tuple[list[Head], BackupFile | None]:
    """Save the present content to a file. Raises if it must not be replaced."""
    with destination.store.reading() as tx:
        refuse_alive(destination.store, tx, destination.alive)
        count = verify.count(tx)[0]
    if count == 0:
        return [], None
    if not destination.replace:
        raise Conflict(
            f"{destination.store.location} contains {count} sessions and was left unchanged; --replace saves them to a file first"
        )
    target = restore.choose_saved_path(destination.home, destination.at)
    taken = target.with_name(target.name + ".taking")
    with backup.open_exclusively(taken):
        try:
            copy_store(destination.store, SqliteEndpoint(taken), _never_alive, on_progress, must_be_sound=False)
            with closing(connection.connect(taken)) as copied:
                heads = verify.list_heads(SqliteTransaction(copied))
                return heads, backup.copy(copied, taken, target, must_be_sound=False, on_progress=on_progress)
        finally:
            backup.remove(taken)


def _never_alive(worker: Worker) -> bool:
    return False


def _refuse_changed(heads: list[Head], old: Transaction, new: Transaction, target: StoreEndpoint) -> None:
    if verify.list_heads(new) != heads:
        raise Busy(
            f"another process wrote to {target.location}; nothing was restored. Stop all users of the store and try again"
        )
