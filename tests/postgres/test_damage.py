"""A PostgreSQL store in which a damaged page was read reports it until a check finds the store sound."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from holdfast.model.errors import Corrupt
from holdfast.model.event import SessionOpened
from holdfast.store.health import damage
from holdfast.store.postgres.connection import connect
from holdfast.store.postgres.driver import open_postgres
from holdfast.store.postgres.integrity_check import PostgresCheck
from holdfast.store.repos import log, sessions
from tests.crash.programs import wait_until
from tests.postgres.cluster import Cluster, name_of
from tests.postgres.test_dashboard import OnPostgres

pytestmark = pytest.mark.timeout(180)
PAGE = 8192


@contextmanager
def damaged(server: Cluster, url: str, relation: str) -> Iterator[None]:
    """The last page of a table or an index is overwritten; at the end it is as before."""
    name = name_of(url)
    server.execute("CHECKPOINT", name)
    [(place,)] = server.execute(f"SELECT pg_relation_filepath('{relation}')", name)
    path = server.data / str(place)
    start = path.stat().st_size - PAGE
    kept = _swap(path, start, b"\xff" * PAGE)
    server.restart()  # it forgets the pages that it has in memory
    try:
        yield
    finally:
        _swap(path, start, kept)


def _swap(path: Path, start: int, content: bytes) -> bytes:
    with path.open("r+b") as file:
        file.seek(start)
        kept = file.read(len(content))
        file.seek(start)
        file.write(content)
    return kept


async def fill(url: str) -> None:
    database = await open_postgres(url)
    await database.write(sessions.create, "hs-1", SessionOpened(source="api"), at=1)
    await database.close()


async def test_damage_is_remembered_until_a_check_finds_the_store_sound(
    durable: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(damage, "CHECK_SECONDS", 0.05)
    url = durable.new_database()
    await fill(url)
    with damaged(durable, url, "event"):
        database = await open_postgres(url)
        before = database.damage()
        with pytest.raises(Corrupt):
            await database.read(log.read, "hs-1")
        async with asyncio.timeout(60):
            while database.damage() is None:
                await asyncio.sleep(0.01)
        found = database.damage()
    async with asyncio.timeout(60):
        while database.damage() is not None:
            await asyncio.sleep(0.01)
    whole = await database.read(log.read, "hs-1")
    await database.close()

    assert before is None, "the damage was not read yet"
    assert found is not None and "is damaged" in found
    assert whole


@pytest.mark.parametrize("relation", ["event", "event_pkey"])
async def test_a_check_finds_damage_in_a_table_and_in_an_index(durable: Cluster, relation: str) -> None:
    url = durable.new_database()
    await fill(url)
    check = PostgresCheck(lambda: connect(url), "here")
    assert check.run() is None
    with damaged(durable, url, relation):
        assert "is damaged" in (check.run() or "")
    assert check.run() is None


def test_a_server_on_a_damaged_store_is_not_ready(tmp_path: Path, durable: Cluster) -> None:
    url = durable.new_database()
    asyncio.run(fill(url))
    with damaged(durable, url, "event"), OnPostgres(tmp_path / "home", url) as server, server.http() as http:
        broken = http.get("/v1/sessions/hs-1/messages")
        wait_until(lambda: http.get("/ready").status_code == 503, "the damage to be told")
        after = http.get("/ready")

    assert broken.status_code == 500
    assert "is damaged" in after.json()["checks"]["store"]
