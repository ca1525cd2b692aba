"""A store in which a damaged page was read reports it until a check finds the store sound."""

import asyncio
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import apsw
import pytest

from holdfast.model.errors import Corrupt
from holdfast.model.event import SessionOpened
from holdfast.store.health import damage
from holdfast.store.repos import log, sessions
from holdfast.store.sqlite.driver import open_sqlite


@contextmanager
def damaged(path: Path, table: str = "event") -> Iterator[None]:
    """The first page of a table is overwritten; at the end it is as before."""
    with closing(apsw.Connection(str(path))) as connection:
        connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
        size = connection.pragma("page_size")
        page = connection.execute("SELECT rootpage FROM sqlite_schema WHERE name = ?", (table,)).get
    with path.open("r+b") as file:
        file.seek((page - 1) * size)
        kept = file.read(size)
        file.seek((page - 1) * size)
        file.write(b"\xff" * size)
    try:
        yield
    finally:
        with path.open("r+b") as file:
            file.seek((page - 1) * size)
            file.write(kept)


async def test_damage_is_remembered_until_a_check_finds_the_store_sound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(damage, "CHECK_SECONDS", 0.05)
    path = tmp_path / "holdfast.db"
    database = await open_sqlite(path)
    await database.write(sessions.create, "hs-1", SessionOpened(source="api"), at=1)
    await database.close()
    with damaged(path):
        database = await open_sqlite(path)
        assert database.damage() is None
        with pytest.raises(Corrupt):
            await database.read(log.read, "hs-1")
        async with asyncio.timeout(30):
            while database.damage() is None:
                await asyncio.sleep(0.01)
        found = database.damage()
    async with asyncio.timeout(30):
        while database.damage() is not None:
            await asyncio.sleep(0.01)
    await database.close()

    assert found is not None
    assert "is damaged" in found
