"""Checks the health of a PostgreSQL store without changing it, and migrates it on request."""

import psycopg

from holdfast.model.errors import HoldfastError
from holdfast.store import verify
from holdfast.store.health.sqlite import StoreHealth, check_workers_and_processes
from holdfast.store.postgres import migrate
from holdfast.store.postgres.connection import Link, check_server, connect, named, redact_url, translate
from holdfast.store.postgres.named_queries import NamedQueryTransaction
from holdfast.store.sqlite.migrate import MigrationStatus


def examine(url: str) -> StoreHealth:
    """The health of the store. Problems are reported, not raised; missing tables are not created."""
    health = StoreHealth(redact_url(url), schema_known=migrate.known()[-1].number)
    try:
        with connect(url) as link:
            health.warnings += check_server(link, health.path)
            _check_content(link, health)
    except psycopg.Error as e:
        health.problems.append(str(translate(e, health.path)))
    except HoldfastError as e:
        health.problems.append(str(e))
    return health


def _check_content(link: Link, health: StoreHealth) -> None:
    status = migrate.check(link, health.path, migrate.known())
    health.exists = status.applied > 0
    if not health.exists:
        return
    health.schema = status.applied
    row = link.execute(named("driver.get_size")).fetchone()
    health.bytes = row[0] if row else 0
    tx = NamedQueryTransaction(link)
    health.problems += [f"database check: {found[0]}" for found in tx.all("verify.check_quickly")]
    health.sessions, health.events = verify.count(tx)
    if tx.one("search.has_extension") is None:
        health.warnings.append(
            "the extension pg_trgm is not installed in the database, so searches read every text; "
            "run CREATE EXTENSION pg_trgm to make them fast"
        )
    if status.pending == 0:
        check_workers_and_processes(tx, health)


def migrate_by_hand(url: str, *, check: bool) -> tuple[str, MigrationStatus]:
    """Migrate the store unless `check` is set; returns its location and the status before."""
    where = redact_url(url)
    try:
        with connect(url) as link:
            check_server(link, where)
            if check:
                return where, migrate.check(link, where, migrate.known())
            return where, migrate.migrate_store(link, where)
    except psycopg.Error as e:
        raise translate(e, where) from e
