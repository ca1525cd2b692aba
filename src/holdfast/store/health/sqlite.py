"""Checks the health of a SQLite store without changing it: location, size, users, problems."""

import os
import shutil
from contextlib import closing
from pathlib import Path

import apsw
import msgspec

from holdfast.model.errors import HoldfastError
from holdfast.model.times import iso
from holdfast.store import verify
from holdfast.store.database import Transaction
from holdfast.store.repos import processes, workers
from holdfast.store.repos.workers import Worker
from holdfast.store.server_clock import clock_warning
from holdfast.store.sqlite import connection as sqlite_connection
from holdfast.store.sqlite import location, migrate
from holdfast.store.sqlite.connection import SqliteTransaction
from holdfast.supervisor import decode_statuses

COMMAND_CHARS = 80
LITTLE_BYTES = 200_000_000
"""Free space below which the next messages are at risk; arbitrary."""


class StoreHealth(msgspec.Struct):
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


def examine(path: Path) -> StoreHealth:
    """The health of the store. Problems are reported, not raised; a missing store is not created."""
    health = StoreHealth(str(path))
    _check_surroundings(path, health)
    if not path.is_file():
        if path.exists():
            health.problems.append(f"{path} is not a file")
        return health
    health.exists = True
    health.bytes = path.stat().st_size
    wal = path.with_name(path.name + "-wal")
    health.wal_bytes = wal.stat().st_size if wal.exists() else 0
    if path.stat().st_mode & 0o077:
        health.warnings.append(f"other users can read {path}; the next start makes it private")
    try:
        with closing(sqlite_connection.connect(path)) as connection:
            _check_content(connection, path, health)
    except apsw.Error as e:
        health.problems.append(str(sqlite_connection.translate(e, path)))
    except HoldfastError as e:
        health.problems.append(str(e))
    return health


def _check_surroundings(path: Path, health: StoreHealth) -> None:
    folder = next(folder for folder in path.parents if folder.exists())
    health.free_bytes = shutil.disk_usage(folder).free
    if health.free_bytes == 0:
        health.problems.append("the disk of the store is full, so nothing can be saved; free some space")
    elif health.free_bytes < LITTLE_BYTES:
        health.warnings.append(f"only {health.free_bytes:,} bytes are free on the disk of the store")
    if not all(os.access(one, os.W_OK) for one in (folder, path) if one.exists()):
        health.problems.append(f"{path} is not writable, so nothing can be saved")
    if location.MOUNTS.exists():
        mounts = location.MOUNTS.read_text("utf-8", "surrogateescape")
        health.file_system = location.file_system(path, mounts)
        try:
            location.refuse_network(path, mounts)
        except HoldfastError as e:
            health.problems.append(str(e))


def _check_content(connection: apsw.Connection, path: Path, health: StoreHealth) -> None:
    status = migrate.check(connection, path, migrate.known())
    health.schema, health.schema_known = status.applied, status.known
    tx = SqliteTransaction(connection)
    health.problems += [f"database check: {row[0]}" for row in tx.all("verify.check_quickly") if row[0] != "ok"]
    if status.applied:
        health.sessions, health.events = verify.count(tx)
    if status.applied and status.pending == 0:
        check_workers_and_processes(tx, health)
        health.warnings += [found] if (found := clock_warning(tx)) is not None else []


def check_workers_and_processes(tx: Transaction, health: StoreHealth) -> None:
    """Add the live workers, warnings about their tasks, and expired processes that still run."""
    health.workers = workers.list_alive(tx)
    for worker in health.workers:
        health.warnings += [
            f"task {task.name} of worker {worker.id} is {task.state}, after {task.failures} failures: {task.error}"
            for task in decode_statuses(worker.tasks)
            if task.state in ("failing", "down")
        ]
    for process in processes.list_live(tx):
        if process.expired_at is not None:
            health.warnings.append(
                f"process {process.id} of session {process.session_id} exceeded its time to live at "
                f"{iso(process.expired_at)}: {process.command[:COMMAND_CHARS]}; 'holdfast ps kill {process.id}' ends it"
            )
