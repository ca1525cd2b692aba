"""Brings a PostgreSQL store to this release's schema, by the same migrations as a SQLite one.

They are written for SQLite. Where PostgreSQL needs other words than the few that are translated here, a file of the
same name in `migrations/postgres` has them. All that is missing is applied in one transaction, or nothing is.
"""

import re
import secrets
from collections.abc import Sequence

import holdfast
from holdfast.model.errors import Unsupported
from holdfast.store import migrate
from holdfast.store.migrate import Migration, Status
from holdfast.store.postgres_connection import Link, named

_WORDS = (
    (re.compile(r"\) STRICT(, WITHOUT ROWID)?"), ")"),
    (re.compile(r"(?<!\bAS )\bINTEGER\b"), "BIGINT"),
    (re.compile(r"(?<!\bAS )\bTEXT\b"), 'TEXT COLLATE "C"'),
)


def translated(sql: str) -> str:
    """A migration of SQLite's in the words of PostgreSQL: whole numbers of 64 bits, texts that compare by their bytes."""
    for pattern, words in _WORDS:
        sql = pattern.sub(words, sql)
    return sql


def known() -> tuple[Migration, ...]:
    """The migrations of this release, in order."""
    ours = {migration.number: migration for migration in migrate.known("postgres")}
    return tuple(
        ours.get(theirs.number) or Migration(theirs.number, theirs.name, translated(theirs.sql))
        for theirs in migrate.known()
    )


def check(link: Link, where: str, migrations: Sequence[Migration]) -> Status:
    """Where the store stands. Raises Unsupported if it is not ours or from a later release."""
    if not _is_ours(link):
        tables = [row[0] for row in link.execute(named("move.tables"))]
        if not tables:
            return Status(0, migrations[-1].number)
        if not _is_ours(link):  # asked again: another may have made the store between the two questions
            raise Unsupported(
                f"{where} holds tables that are not Holdfast's ({', '.join(tables[:3])} …); it was left alone. "
                "Give Holdfast a database of its own"
            )
    row = link.execute(named("driver.applied")).fetchone()
    assert row is not None
    found = Status(row[0], migrations[-1].number)
    if found.pending < 0:
        raise Unsupported(
            f"{where} was written by a newer release (its schema is {found.applied}, this release knows {found.known}); "
            "nothing was changed. Install the newer release, or restore a backup made before the upgrade"
        )
    return found


def _is_ours(link: Link) -> bool:
    return link.execute(named("driver.ours")).fetchone() is not None


def bring_up(link: Link, where: str, migrations: Sequence[Migration] | None = None) -> Status:
    """Apply what is missing, all or nothing, and say where the store stood before.

    Safe to call from many processes at once: the second finds nothing to do.
    """
    migrations = known() if migrations is None else migrations
    before = check(link, where, migrations)
    if before.pending == 0:
        return before
    with link.transaction():
        link.execute(named("driver.alone"))
        _apply(link, where, migrations)
    return before


def _apply(link: Link, where: str, migrations: Sequence[Migration]) -> None:
    applied = check(link, where, migrations).applied
    if applied == 0:
        link.execute(named("driver.create_ledger"), prepare=False)
    for migration in migrations[applied:]:
        link.execute(migration.sql, prepare=False)
        link.execute(
            named("driver.record"),
            {
                "number": migration.number,
                "name": migration.name,
                "digest": migration.digest,
                "release": holdfast.__version__,
            },
        )
    if applied == 0:
        link.execute(named("meta.put"), {"key": "store_id", "value": secrets.token_hex(8)})
