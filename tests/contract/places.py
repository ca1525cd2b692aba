"""Where the stores of the contract suite are, as addresses that another process can be given."""

from pathlib import Path

from holdfast.store.database import Database
from holdfast.store.postgres import open_postgres
from holdfast.store.sqlite import open_sqlite
from tests.postgres.cluster import cluster

KINDS = ["sqlite", "postgres"]
"""The one hole of the suite: a second database joins here, below, and in nothing else."""


def new_place(kind: str, folder: Path) -> str:
    """The address of a store that does not exist yet."""
    match kind:
        case "sqlite":
            return f"sqlite:///{folder / 'home' / 'holdfast.db'}"
        case "postgres":
            return cluster().new_database()
        case _:
            raise AssertionError(f"no store is called {kind}")


async def open_place(address: str) -> Database:
    """Open the store, making it first if it is not there. May be called more than once, by many processes."""
    kind, _, rest = address.partition("://")
    match kind:
        case "sqlite":
            return await open_sqlite(Path(rest))
        case "postgresql":
            return await open_postgres(address)
        case _:
            raise AssertionError(f"no store is at {address}")
