"""Migrates a PostgreSQL store to the schema of this release, with the same migrations as a SQLite store.

They are written for SQLite, and a few keywords are translated here. Where that does not suffice, a file of the same
number in `migrations/postgres` replaces the migration. All missing migrations are applied in one transaction, or none.
"""

import re
import secrets
from collections.abc import Sequence

import holdfast
from holdfast.model.errors import Unsupported
from holdfast.store.postgres.connection import Link, named
from holdfast.store.sqlite import migrate
from holdfast.store.sqlite.migrate import Migration, MigrationStatus

_WORDS = (
    (re.compile(r"\) STRICT(, WITHOUT ROWID)?"), ")"),
    (re.compile(r"(?<!\bAS )\bINTEGER\b"), "BIGINT"),
    (re.compile(r"(?<!\bAS )\bTEXT\b"), 'TEXT COLLATE "C"'),
)


def translate_sql(sql: str) -> str:
    """A SQLite migration in the dialect of PostgreSQL: 64-bit integers, and texts that compare by bytes."""
    for pattern, words in _WORDS:
        sql = pattern.sub(words, sql)
    return sql


def known() -> tuple[Migration, ...]:
    """The migrations of this release, in order."""
    ours = {migration.number: migration for migration in migrate.known("postgres")}
    return tuple(
        ours.get(theirs.number) or Migration(theirs.number, theirs.name, translate_sql(theirs.sql))
        for theirs in migrate.known()
    )


def check(link: Link, where: str, migrations: Sequence[Migration]) -> MigrationStatus:
    """The status of the store. Raises Unsupported if it is not a Holdfast store or is from a newer release."""
    if not _is_ours(link):
        tables = [row[0] for row in link.execute(named("copy_store.list_tables"))]
        if not tables:
            return MigrationStatus(0, migrations[-1].number)
        if not _is_ours(link):  # checked again: another process may have created the store between the two queries
            raise Unsupported(
                f"{where} contains tables of another program ({', '.join(tables[:3])} …) and was left unchanged; "
                "give Holdfast its own database"
            )
    row = link.execute(named("driver.get_applied")).fetchone()
    assert row is not None
    found = MigrationStatus(row[0], migrations[-1].number)
    if found.pending < 0:
        raise Unsupported(
            f"{where} was written by a newer release (its schema is {found.applied}, this release has {found.known}); "
            "nothing was changed. Install the newer release, or restore a backup made before the upgrade"
        )
    return found


def _is_ours(link: Link) -> bool:
    return link.execute(named("driver.has_our_ledger")).fetchone() is not None


def migrate_store(link: Link, where: str, migrations: Sequence[Migration] | None = None) -> MigrationStatus:
    """Apply the missing migrations, all or none; returns the status before.

    Several processes may call this at once: the second one finds nothing to do.
    """
    migrations = known() if migrations is None else migrations
    before = check(link, where, migrations)
    if before.pending == 0:
        return before
    with link.transaction():
        link.execute(named("driver.lock_migration"))
        _apply(link, where, migrations)
    return before


def _apply(link: Link, where: str, migrations: Sequence[Migration]) -> None:
    applied = check(link, where, migrations).applied
    if applied == 0:
        link.execute(named("driver.create_ledger"), prepare=False)
    for migration in (one for one in migrations if one.number > applied):
        link.execute(migration.sql, prepare=False)
        link.execute(
            named("driver.record_migration"),
            {
                "number": migration.number,
                "name": migration.name,
                "digest": migration.digest,
                "release": holdfast.__version__,
            },
        )
    if applied == 0:
        link.execute(named("meta.put"), {"key": "store_id", "value": secrets.token_hex(8)})
