"""Stores that are copied from a migrated template: running every migration takes longer than most tests."""

import asyncio
import secrets
import tempfile
import threading
from functools import cache
from pathlib import Path

from holdfast.store.sqlite import connection, location
from holdfast.store.sqlite.driver import SqliteDatabase, open_sqlite

STORE_ID = "SELECT value FROM meta WHERE key = 'store_id'"


@cache
def _template() -> tuple[bytes, bytes]:
    """The file of an empty store, made by the real migrations, and its store id."""
    with tempfile.TemporaryDirectory(prefix="holdfast-template-") as folder:
        path = Path(folder) / "holdfast.db"
        maker = threading.Thread(target=lambda: asyncio.run(_make(path)))  # an event loop may run in this thread
        maker.start()
        maker.join()
        link = connection.connect(path)
        try:
            link.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            store_id = str(link.execute(STORE_ID).get)
        finally:
            link.close()
        content = path.read_bytes()
    assert content.count(store_id.encode()) == 1
    return content, store_id.encode()


async def _make(path: Path) -> None:
    database = await open_sqlite(path)
    await database.close()


def put_store(path: Path) -> None:
    """Write an empty store with its own store id, like a first start."""
    content, store_id = _template()
    location.prepare(path)
    path.write_bytes(content.replace(store_id, secrets.token_hex(len(store_id) // 2).encode()))


async def open_migrated(path: Path) -> SqliteDatabase:
    """As `open_sqlite`; a store that does not exist is copied from the template first."""
    if not path.exists():
        put_store(path)
    return await open_sqlite(path)
