"""Migrates a SQLite store to the schema of this release: numbered files, forward only, each applied once and recorded."""

import hashlib
import os
import secrets
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import apsw
import msgspec

import holdfast
from holdfast.model.errors import Unsupported
from holdfast.store import durable_file

APPLICATION = 0x48464C44
"""`HFLD`, in the header of every Holdfast store."""
PATIENCE_MILLIS = 60_000
"""How long to wait for another process that is creating the store."""

LEDGER = """
CREATE TABLE migration (
  number INTEGER NOT NULL PRIMARY KEY,
  name TEXT NOT NULL,
  digest TEXT NOT NULL,
  release TEXT NOT NULL
) STRICT
"""


class Migration(msgspec.Struct, frozen=True):
    number: int
    name: str
    sql: str

    @property
    def digest(self) -> str:
        return hashlib.sha256(self.sql.encode("utf-8")).hexdigest()


class MigrationStatus(msgspec.Struct, frozen=True):
    """The schema number of a store, and the newest one of this release."""

    applied: int
    known: int

    @property
    def pending(self) -> int:
        return self.known - self.applied


@cache
def known(dialect: str = "sqlite") -> tuple[Migration, ...]:
    """The migrations of this release, in order. File names begin with the number."""
    folder = Path(__file__).parents[1] / "migrations" / dialect
    found = [
        Migration(int(file.name[:4]), file.name[5:-4], file.read_text("utf-8"))
        for file in folder.iterdir()
        if file.name.endswith(".sql")
    ]
    return tuple(sorted(found, key=lambda migration: migration.number))


def status(connection: apsw.Connection, migrations: Sequence[Migration]) -> MigrationStatus:
    applied = connection.pragma("user_version")
    assert isinstance(applied, int)
    return MigrationStatus(applied, migrations[-1].number)


def check(connection: apsw.Connection, path: Path, migrations: Sequence[Migration]) -> MigrationStatus:
    """The status of the store. Raises Unsupported if it is not a Holdfast store or is from a newer release."""
    found = status(connection, migrations)
    empty = connection.execute("SELECT count(*) FROM sqlite_schema").get == 0
    if not empty and connection.pragma("application_id") != APPLICATION:
        raise Unsupported(f"{path} is a SQLite database of another program; it was left unchanged")
    if found.pending < 0:
        raise Unsupported(
            f"{path} was written by a newer release (its schema is {found.applied}, this release has {found.known}); "
            "nothing was changed. Install the newer release, or restore a backup made before the upgrade"
        )
    return found


def refuse_foreign(path: Path) -> None:
    """Raise Unsupported if the file is not a Holdfast store or is from a newer release. Does not change the file."""
    try:
        _look(path, apsw.SQLITE_OPEN_READONLY)
    except apsw.ReadOnlyError:  # a crash left a journal, which must be rolled back before the file can be read
        _look(path, apsw.SQLITE_OPEN_READWRITE)


def _look(path: Path, flags: int) -> None:
    connection = apsw.Connection(str(path), flags=flags)
    try:
        connection.set_busy_timeout(PATIENCE_MILLIS)
        check(connection, path, known())
    finally:
        connection.close()


def migrate(connection: apsw.Connection, path: Path, migrations: Sequence[Migration] | None = None) -> MigrationStatus:
    """Apply the missing migrations, all or none; returns the status before.

    A store with data is first copied to `<file>.before-NNNN`, so that an upgrade can be undone. Several processes may
    call this at once: the second one finds nothing to do.
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
    for migration in (one for one in migrations if one.number > applied):
        connection.execute(migration.sql).fetchall()  # a statement that returns rows would stop the rest
        connection.execute(
            "INSERT INTO migration (number, name, digest, release) VALUES (?, ?, ?, ?)",
            (migration.number, migration.name, migration.digest, holdfast.__version__),
        )
    if applied == 0:
        connection.execute("INSERT INTO meta (key, value) VALUES ('store_id', ?)", (secrets.token_hex(8),))
    connection.execute(f"PRAGMA application_id = {APPLICATION}")
    connection.execute(f"PRAGMA user_version = {migrations[-1].number}")


def _keep_copy(path: Path, copy: Path) -> None:
    """Copy the committed data while the migration blocks all writers. An incomplete copy never gets the final name."""
    part = copy.with_name(f"{copy.name}.part")
    part.unlink(missing_ok=True)
    os.close(os.open(part, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    source = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        source.execute("VACUUM INTO ?", (str(part),))
    finally:
        source.close()
    durable_file.rename(part, copy)
