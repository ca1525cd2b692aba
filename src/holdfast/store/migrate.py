"""Brings a SQLite store to this release's schema: numbered files, forward only, each applied once and recorded."""

import hashlib
import os
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import apsw

import holdfast
from holdfast.model.errors import Unsupported

APPLICATION = 0x48464C44
"""`HFLD`, in the header of every store of ours."""
PATIENCE_MILLIS = 60_000
"""How long to wait for another process that is just making the store."""

LEDGER = """
CREATE TABLE migration (
  number INTEGER NOT NULL PRIMARY KEY,
  name TEXT NOT NULL,
  digest TEXT NOT NULL,
  release TEXT NOT NULL
) STRICT
"""


@dataclass(frozen=True, slots=True)
class Migration:
    number: int
    name: str
    sql: str

    @property
    def digest(self) -> str:
        return hashlib.sha256(self.sql.encode("utf-8")).hexdigest()


@dataclass(frozen=True, slots=True)
class Status:
    """Where a store stands."""

    applied: int
    known: int

    @property
    def pending(self) -> int:
        return self.known - self.applied


def known(dialect: str = "sqlite") -> tuple[Migration, ...]:
    """The migrations of this release, in order. The number leads the file's name."""
    folder = Path(__file__).with_name("migrations") / dialect
    found = [
        Migration(int(file.name[:4]), file.name[5:-4], file.read_text("utf-8"))
        for file in folder.iterdir()
        if file.name.endswith(".sql")
    ]
    return tuple(sorted(found, key=lambda migration: migration.number))


def status(connection: apsw.Connection, migrations: Sequence[Migration]) -> Status:
    applied = connection.pragma("user_version")
    assert isinstance(applied, int)
    return Status(applied, migrations[-1].number)


def check(connection: apsw.Connection, path: Path, migrations: Sequence[Migration]) -> Status:
    """Where the store stands. Raises Unsupported if it is not ours or from a later release."""
    found = status(connection, migrations)
    empty = connection.execute("SELECT count(*) FROM sqlite_schema").get == 0
    if not empty and connection.pragma("application_id") != APPLICATION:
        raise Unsupported(f"{path} is a SQLite database, but not one of Holdfast's; it was left alone")
    if found.pending < 0:
        raise Unsupported(
            f"{path} was written by a newer release (its schema is {found.applied}, this release knows {found.known}); "
            "nothing was changed. Install the newer release, or restore a backup made before the upgrade"
        )
    return found


def refuse_foreign(path: Path) -> None:
    """Raise Unsupported if the file is not ours or from a later release, having changed nothing of it."""
    try:
        _look(path, apsw.SQLITE_OPEN_READONLY)
    except apsw.ReadOnlyError:  # a crash left a journal that must be rolled back before anybody can read
        _look(path, apsw.SQLITE_OPEN_READWRITE)


def _look(path: Path, flags: int) -> None:
    connection = apsw.Connection(str(path), flags=flags)
    try:
        connection.set_busy_timeout(PATIENCE_MILLIS)
        check(connection, path, known())
    finally:
        connection.close()


def migrate(connection: apsw.Connection, path: Path, migrations: Sequence[Migration] | None = None) -> Status:
    """Apply what is missing, all or nothing, and say where the store stood before.

    A store that already holds something is copied beside itself first (`<file>.before-NNNN`), so that an
    upgrade can be taken back. Safe to call from many processes at once: the second finds nothing to do.
    """
    migrations = known() if migrations is None else migrations
    before = check(connection, path, migrations)
    if before.pending == 0:
        return before
    connection.execute("BEGIN IMMEDIATE")
    try:
        _apply(connection, path, migrations)
        connection.execute("COMMIT")
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
    return before


def _apply(connection: apsw.Connection, path: Path, migrations: Sequence[Migration]) -> None:
    applied = check(connection, path, migrations).applied
    if 0 < applied < migrations[-1].number:
        _keep_copy(path, path.with_name(f"{path.name}.before-{applied + 1:04}"))
    if applied == 0:
        connection.execute(LEDGER)
    for migration in migrations[applied:]:
        connection.execute(migration.sql).fetchall()  # a statement that yields rows would stop the rest
        connection.execute(
            "INSERT INTO migration (number, name, digest, release) VALUES (?, ?, ?, ?)",
            (migration.number, migration.name, migration.digest, holdfast.__version__),
        )
    if applied == 0:
        connection.execute("INSERT INTO meta (key, value) VALUES ('store_id', ?)", (secrets.token_hex(8),))
    connection.execute(f"PRAGMA application_id = {APPLICATION}")
    connection.execute(f"PRAGMA user_version = {migrations[-1].number}")


def _keep_copy(path: Path, copy: Path) -> None:
    """Copy what is committed, while the one who migrates keeps all others from writing. Half a copy never gets the name."""
    part = copy.with_name(f"{copy.name}.part")
    part.unlink(missing_ok=True)
    os.close(os.open(part, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    source = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        source.execute("VACUUM INTO ?", (str(part),))
    finally:
        source.close()
    part.replace(copy)
