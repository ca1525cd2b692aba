"""Helpers of the backup and restore tests."""

from contextlib import closing
from pathlib import Path

from holdfast.model.event import SessionOpened
from holdfast.model.ids import SESSION
from holdfast.store import verify
from holdfast.store.backup import backup
from holdfast.store.backup.restore import RestoreTarget
from holdfast.store.database import Transaction
from holdfast.store.repos import meta, sessions
from holdfast.store.sqlite.connection import SqliteTransaction, connect
from holdfast.store.sqlite.driver import open_sqlite
from tests.cli.seed import Seed


def place(seed: Seed, *, replace: bool = True, alive: bool = False) -> RestoreTarget:
    home = seed.path.parent
    return RestoreTarget(store=seed.path, home=home, replace=replace, alive=lambda worker: alive, at=seed.clock.now())


def heads(path: Path) -> dict[str, tuple[int, str]]:
    """The content of a store: every session with its last event. A copy is only read: opening it as a store would change it."""
    opened = connect(path) if path.name == "holdfast.db" else backup.open_copy(path)
    with closing(opened) as connection:
        return {one: (seq, hash_) for one, seq, hash_ in verify.list_heads(SqliteTransaction(connection))}


def store_id(path: Path) -> str:
    with closing(connect(path)) as connection:
        return meta.get_store_id(SqliteTransaction(connection))


def files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def new_session(tx: Transaction, seed: Seed) -> str:
    session, _ = sessions.create(tx, seed.ids.make(SESSION), SessionOpened(source="chat"), at=seed.clock.now())
    return session.id


async def is_sound(path: Path) -> bool:
    database = await open_sqlite(path)
    try:
        return (await verify.verify(database)).ok
    finally:
        await database.close()
