"""A store is copied from SQLite to PostgreSQL and back, completely and verified, or not at all."""

import gzip
import sqlite3
from pathlib import Path

import pytest

from holdfast.model.errors import Busy, Conflict, Corrupt
from holdfast.store.backup.copy_store import CopyReport, copy_store
from holdfast.store.backup.endpoints import PostgresEndpoint, SqliteEndpoint
from holdfast.store.postgres.driver import open_postgres
from holdfast.store.postgres.search import open_table
from holdfast.store.repos import log, meta, session_list, sessions, workers
from holdfast.store.sqlite.driver import open_sqlite
from tests.contract.logs import user
from tests.migrations.make_store import STORES, make
from tests.postgres.cluster import cluster, name_of


def nobody(worker: workers.Worker) -> bool:
    return False


def contents(path: Path) -> dict[str, list[tuple[object, ...]]]:
    """Every row of every table of a SQLite store, except its migration table."""
    with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as link:
        tables = [row[0] for row in link.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
        found = {name: sorted(link.execute(f"SELECT * FROM {name}"), key=repr) for name in tables}
    link.close()
    found.pop("migration")
    return found


@pytest.fixture
async def filled(tmp_path: Path) -> Path:
    """A store with sessions in every state and events of every kind."""
    path = tmp_path / "old" / "holdfast.db"
    await make(path)
    return path


def to_postgres(path: Path, url: str) -> CopyReport:
    return copy_store(SqliteEndpoint(path), PostgresEndpoint(url), nobody)


async def test_a_store_is_copied_to_postgresql_and_back_row_by_row(filled: Path, url: str, tmp_path: Path) -> None:
    before = contents(filled)
    there = to_postgres(filled, url)
    back = copy_store(PostgresEndpoint(url), SqliteEndpoint(tmp_path / "new" / "holdfast.db"), nobody)

    assert contents(tmp_path / "new" / "holdfast.db") == before == contents(filled)
    assert (there.sessions, there.events, there.store_id) == (back.sessions, back.events, back.store_id)
    assert there.sessions == len(before["session"]) > 5 and there.events == len(before["event"]) > 50


async def test_a_copied_store_can_be_used(filled: Path, url: str) -> None:
    to_postgres(filled, url)
    database = await open_postgres(url)
    old = await open_sqlite(filled)
    newest = (await database.read(lambda tx: tx.one("log.get_last_position")))[0]
    for one in (await old.read(session_list.list_page, session_list.EVERYTHING, limit=100)).sessions:
        moved = await database.read(sessions.get, one.id)
        assert moved == one
        assert await database.read(log.read_complete, moved) == await old.read(log.read_complete, one)
    await database.write(log.append_unheld, "hf-plain", [user("and a nightingale sang")], at=10**16)

    assert (await database.read(lambda tx: tx.one("log.get_last_position")))[0] > newest
    index = await open_table(database)
    await index.catch_up()
    assert len(await index.search("nightingale")) == 1 and len(await index.search("日本語")) == 5
    await index.close()
    await database.close()
    await old.close()


@pytest.mark.parametrize("file", sorted(STORES.glob("*.db.gz")), ids=lambda file: file.name)
def test_a_store_of_every_release_can_be_copied(file: Path, url: str, tmp_path: Path) -> None:
    path = tmp_path / "holdfast.db"
    path.write_bytes(gzip.decompress(file.read_bytes()))

    assert to_postgres(path, url).sessions >= 6


async def test_a_second_copy_adds_what_is_new(filled: Path, url: str) -> None:
    to_postgres(filled, url)
    old = await open_sqlite(filled)
    await old.write(log.append_unheld, "hf-plain", [user("later")], at=10**16)
    await old.close()
    moved = to_postgres(filled, url)

    assert moved.events == len(contents(filled)["event"])


async def test_a_target_with_new_events_of_its_own_is_left_unchanged(filled: Path, url: str) -> None:
    to_postgres(filled, url)
    database = await open_postgres(url)
    session = await database.write(log.append_unheld, "hf-plain", [user("said here")], at=10**16)
    with pytest.raises(Conflict, match="has new events since"):
        to_postgres(filled, url)

    assert await database.read(sessions.get, "hf-plain") == session
    await database.close()


async def test_a_target_with_sessions_of_another_store_is_left_unchanged(
    filled: Path, url: str, tmp_path: Path
) -> None:
    other = tmp_path / "other" / "holdfast.db"
    await make(other)
    to_postgres(other, url)
    with pytest.raises(Conflict, match="another store"):
        to_postgres(filled, url)
    with pytest.raises(Conflict, match="another store"):
        copy_store(PostgresEndpoint(url), SqliteEndpoint(filled), nobody)

    assert contents(filled)["meta"] != contents(other)["meta"]


async def test_a_damaged_store_is_not_copied_and_leaves_nothing(filled: Path, url: str) -> None:
    with sqlite3.connect(filled) as link:
        link.execute("UPDATE event SET body = replace(body, 'One file', 'Two file') WHERE session_id = 'hf-pinned'")
    link.close()
    with pytest.raises(Corrupt, match="session hf-pinned: event 7 was changed"):
        to_postgres(filled, url)

    assert cluster().execute("SELECT count(*) FROM session", name_of(url)) == [(0,)]


@pytest.mark.parametrize("whose", ["source", "target"])
async def test_a_store_in_use_is_not_copied(filled: Path, url: str, whose: str) -> None:
    def alive(worker: workers.Worker) -> bool:
        return worker.id == "worker-1"

    if whose == "source":
        with pytest.raises(Busy, match=r"worker-1 .* is using .*holdfast.db"):
            copy_store(SqliteEndpoint(filled), PostgresEndpoint(url), alive)
    else:
        to_postgres(filled, url)
        with pytest.raises(Busy, match=r"worker-1 .* is using"):
            copy_store(SqliteEndpoint(filled), PostgresEndpoint(url), alive)


def test_a_refused_copy_creates_no_store(filled: Path, tmp_path: Path) -> None:
    with pytest.raises(Busy):
        copy_store(SqliteEndpoint(filled), SqliteEndpoint(tmp_path / "new" / "holdfast.db"), lambda _: True)

    assert not (tmp_path / "new").exists()


async def test_an_interrupted_copy_leaves_the_target_unchanged(filled: Path, url: str) -> None:
    to_postgres(filled, url)
    database = await open_postgres(url)
    store_id = await database.read(meta.get_store_id)

    class Broken(SqliteEndpoint):
        def get_last_position(self) -> int:
            raise OSError("the disk is gone")

    with pytest.raises(OSError, match="the disk is gone"):
        copy_store(Broken(filled), PostgresEndpoint(url), nobody)

    page = await database.read(session_list.list_page, session_list.EVERYTHING, limit=100)
    assert len(page.sessions) == len(contents(filled)["session"])
    assert await database.read(meta.get_store_id) == store_id
    await database.close()
