from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from holdfast.store.sqlite.driver import SqliteDatabase
from tests.engine import stage
from tests.fakes.migrated import open_migrated


@pytest.fixture(autouse=True)
async def closed_stores(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[None]:
    """Close every store at the end of the test: a stopped gateway leaves its store open for the next one."""
    opened: list[SqliteDatabase] = []

    async def open_and_record(path: Path) -> SqliteDatabase:
        opened.append(await open_migrated(path))
        return opened[-1]

    monkeypatch.setattr(stage, "open_migrated", open_and_record)
    yield
    for database in opened:
        await database.close()
