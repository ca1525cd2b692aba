from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from holdfast.store.sqlite import SqliteDatabase, open_sqlite
from tests.engine import stage


@pytest.fixture(autouse=True)
async def closed_stores(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[None]:
    """A gateway is stopped and the store stays open for the next one; when the test ends, it is closed."""
    opened: list[SqliteDatabase] = []

    async def open_and_note(path: Path) -> SqliteDatabase:
        opened.append(await open_sqlite(path))
        return opened[-1]

    monkeypatch.setattr(stage, "open_sqlite", open_and_note)
    yield
    for database in opened:
        await database.close()
