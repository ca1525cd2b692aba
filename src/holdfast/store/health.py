"""Looks a SQLite store over without changing it: where it lies, how large it is, who uses it, what is wrong."""

import os
import shutil
from contextlib import closing
from pathlib import Path

import apsw
import msgspec

from holdfast.model.errors import HoldfastError
from holdfast.model.times import iso
from holdfast.store import files, migrate, processes, sqlite_connection, verify, workers
from holdfast.store.database import Transaction
from holdfast.store.sqlite_connection import SqliteTransaction
from holdfast.store.workers import Worker

COMMAND_CHARS = 80
LITTLE_BYTES = 200_000_000
"""Free space below which the next messages are at risk; arbitrary."""


class Health(msgspec.Struct):
    path: str
    exists: bool = False
    file_system: str | None = None
    free_bytes: int | None = None
    bytes: int = 0
    wal_bytes: int = 0
    schema: int | None = None
    schema_known: int = 0
    sessions: int | None = None
    events: int | None = None
    workers: list[Worker] = []
    problems: list[str] = []
    warnings: list[str] = []


def examine(path: Path) -> Health:
    """What can be said about the store. Damage is reported, not raised; a store that is not there is not made."""
    health = Health(str(path))
    _look_around(path, health)
    if not path.is_file():
        if path.exists():
            health.problems.append(f"{path} is not a file")
        return health
    health.exists = True
    health.bytes = path.stat().st_size
    wal = path.with_name(path.name + "-wal")
    health.wal_bytes = wal.stat().st_size if wal.exists() else 0
    if path.stat().st_mode & 0o077:
        health.warnings.append(f"others can read {path}; it is made private when it is next opened")
    try:
        with closing(sqlite_connection.connect(path)) as connection:
            _look_inside(connection, path, health)
    except apsw.Error as e:
        health.problems.append(str(sqlite_connection.translate(e, path)))
    except HoldfastError as e:
        health.problems.append(str(e))
    return health


def _look_around(path: Path, health: Health) -> None:
    folder = next(folder for folder in path.parents if folder.exists())
    health.free_bytes = shutil.disk_usage(folder).free
    if health.free_bytes < LITTLE_BYTES:
        health.warnings.append(f"only {health.free_bytes:,} bytes are free where the store lies")
    if not all(os.access(place, os.W_OK) for place in (folder, path) if place.exists()):
        health.problems.append(f"nothing can be saved: {path} cannot be written")
    if files.MOUNTS.exists():
        mounts = files.MOUNTS.read_text("utf-8", "surrogateescape")
        health.file_system = files.file_system(path, mounts)
        try:
            files.refuse_network(path, mounts)
        except HoldfastError as e:
            health.problems.append(str(e))


def _look_inside(connection: apsw.Connection, path: Path, health: Health) -> None:
    status = migrate.check(connection, path, migrate.known())
    health.schema, health.schema_known = status.applied, status.known
    tx = SqliteTransaction(connection)
    health.problems += [f"the database says: {row[0]}" for row in tx.all("verify.quick") if row[0] != "ok"]
    if status.applied:
        health.sessions, health.events = verify.count(tx)
    if status.applied and status.pending == 0:
        look_who_runs(tx, health)


def look_who_runs(tx: Transaction, health: Health) -> None:
    """The workers that live, and processes that nobody has ended."""
    health.workers = workers.alive(tx)
    for process in processes.live(tx):
        if process.expired_at is not None:
            health.warnings.append(
                f"process {process.id} of session {process.session_id} is past its time to live since "
                f"{iso(process.expired_at)}: {process.command[:COMMAND_CHARS]}; 'holdfast ps kill {process.id}' ends it"
            )
