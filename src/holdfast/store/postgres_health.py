"""Looks a PostgreSQL store over without changing it, and brings it up by hand."""

import psycopg

from holdfast.model.errors import HoldfastError
from holdfast.store import postgres_migrate, verify
from holdfast.store.health import Health, look_who_runs
from holdfast.store.migrate import Status
from holdfast.store.postgres_connection import Link, connect, named, refuse_unfit, shown, translate
from holdfast.store.postgres_plain import PlainTransaction


def examine(url: str) -> Health:
    """What can be said about the store. What is wrong is reported, not raised; tables that are not there are not made."""
    health = Health(shown(url), schema_known=postgres_migrate.known()[-1].number)
    try:
        with connect(url) as link:
            health.warnings += refuse_unfit(link, health.path)
            _look_inside(link, health)
    except psycopg.Error as e:
        health.problems.append(str(translate(e, health.path)))
    except HoldfastError as e:
        health.problems.append(str(e))
    return health


def _look_inside(link: Link, health: Health) -> None:
    status = postgres_migrate.check(link, health.path, postgres_migrate.known())
    health.exists = status.applied > 0
    if not health.exists:
        return
    health.schema = status.applied
    row = link.execute(named("driver.size")).fetchone()
    health.bytes = row[0] if row else 0
    tx = PlainTransaction(link)
    health.problems += [f"the database says: {found[0]}" for found in tx.all("verify.quick")]
    health.sessions, health.events = verify.count(tx)
    if tx.one("search.trigrams") is None:
        health.warnings.append(
            "the extension pg_trgm is not installed in the database: searches read every text. "
            "CREATE EXTENSION pg_trgm makes them quick"
        )
    if status.pending == 0:
        look_who_runs(tx, health)


def migrate_by_hand(url: str, *, check: bool) -> tuple[str, Status]:
    """Where the store is and where its schema stood; unless it is only checked, it is this release's now."""
    where = shown(url)
    try:
        with connect(url) as link:
            refuse_unfit(link, where)
            if check:
                return where, postgres_migrate.check(link, where, postgres_migrate.known())
            return where, postgres_migrate.bring_up(link, where)
    except psycopg.Error as e:
        raise translate(e, where) from e
