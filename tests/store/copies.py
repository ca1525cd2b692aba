"""What the tests of backup and restore share."""

from contextlib import closing
from pathlib import Path

from holdfast.model.event import SessionOpened
from holdfast.model.ids import SESSION
from holdfast.store import backup, meta, sessions, verify
from holdfast.store.database import Transaction
from holdfast.store.restore import Place
from holdfast.store.sqlite import open_sqlite
from holdfast.store.sqlite_connection import SqliteTransaction, connect
from tests.cli.seed import Seed


def place(seed: Seed, *, replace: bool = True, alive: bool = False) -> Place:
    home = seed.path.parent
    return Place(store=seed.path, home=home, replace=replace, alive=lambda worker: alive, at=seed.clock.now())


def heads(path: Path) -> dict[str, tuple[int, str]]:
    """What a store holds: every session with its last event. A copy is only read: opening it as a store would change it."""
    opened = connect(path) if path.name == "holdfast.db" else backup.open_copy(path)
    with closing(opened) as connection:
        return {one: (seq, hash_) for one, seq, hash_ in verify.heads(SqliteTransaction(connection))}


def store_id(path: Path) -> str:
    with closing(connect(path)) as connection:
        return meta.store_id(SqliteTransaction(connection))


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
