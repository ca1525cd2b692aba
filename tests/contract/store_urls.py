"""The stores of the contract suite, as URLs that can be passed to another process."""

from pathlib import Path

import pytest

from holdfast.store.database import Database
from holdfast.store.postgres.driver import open_postgres
from holdfast.store.sqlite.driver import open_sqlite
from tests.fakes.migrated import put_store
from tests.postgres.cluster import cluster

KINDS = ["sqlite", pytest.param("postgres", marks=pytest.mark.process)]
"""A further database is added only here and in the functions below."""


def new_place(kind: str, folder: Path, *, migrated: bool = False) -> str:
    """The URL of a store that does not exist yet; or, if `migrated`, of an empty one."""
    match kind:
        case "sqlite":
            path = folder / "home" / "holdfast.db"
            if migrated:
                put_store(path)
            return f"sqlite:///{path}"
        case "postgres":
            return cluster().new_database(migrated=migrated)
        case _:
            raise AssertionError(f"no store is called {kind}")


async def open_place(address: str) -> Database:
    """Open the store; create it first if it does not exist. May be called more than once, by many processes."""
    kind, _, rest = address.partition("://")
    match kind:
        case "sqlite":
            return await open_sqlite(Path(rest))
        case "postgresql":
            return await open_postgres(address)
        case _:
            raise AssertionError(f"no store is at {address}")
