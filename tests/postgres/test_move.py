"""A store moves from SQLite to PostgreSQL and back, whole and proved, or not at all."""

import gzip
import sqlite3
from pathlib import Path

import pytest

from holdfast.model.errors import Busy, Conflict, Corrupt
from holdfast.store import log, meta, sessions, workers
from holdfast.store.move import Moved, move
from holdfast.store.move_ends import PostgresEnd, SqliteEnd
from holdfast.store.postgres import open_postgres
from holdfast.store.postgres_search import open_table
from holdfast.store.sqlite import open_sqlite
from tests.contract.logs import user
from tests.migrations.make_store import STORES, make
from tests.postgres.cluster import cluster, name_of


def nobody(worker: workers.Worker) -> bool:
    return False


def contents(path: Path) -> dict[str, list[tuple[object, ...]]]:
    """Every row of every table of a SQLite store, the ledger of its migrations aside."""
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


def to_postgres(path: Path, url: str) -> Moved:
    return move(SqliteEnd(path), PostgresEnd(url), nobody)


async def test_a_store_goes_to_postgresql_and_comes_back_row_by_row_the_same(
    filled: Path, url: str, tmp_path: Path
) -> None:
    before = contents(filled)
    there = to_postgres(filled, url)
    back = move(PostgresEnd(url), SqliteEnd(tmp_path / "new" / "holdfast.db"), nobody)

    assert contents(tmp_path / "new" / "holdfast.db") == before == contents(filled)
    assert (there.sessions, there.events, there.store_id) == (back.sessions, back.events, back.store_id)
    assert there.sessions == len(before["session"]) > 5 and there.events == len(before["event"]) > 50


async def test_what_was_moved_is_a_store_that_goes_on(filled: Path, url: str) -> None:
    to_postgres(filled, url)
    database = await open_postgres(url)
    old = await open_sqlite(filled)
    newest = (await database.read(lambda tx: tx.one("log.last_position")))[0]
    for one in (await old.read(sessions.list_page, sessions.EVERYTHING, limit=100)).sessions:
        moved = await database.read(sessions.get, one.id)
        assert moved == one
        assert await database.read(log.read_whole, moved) == await old.read(log.read_whole, one)
    await database.write(log.append_unheld, "hf-plain", [user("and a nightingale sang")], at=10**16)

    assert (await database.read(lambda tx: tx.one("log.last_position")))[0] > newest
    index = await open_table(database)
    await index.catch_up()
    assert len(await index.search("nightingale")) == 1 and len(await index.search("日本語")) == 5
    await index.close()
    await database.close()
    await old.close()


@pytest.mark.parametrize("file", sorted(STORES.glob("*.db.gz")), ids=lambda file: file.name)
def test_a_store_of_every_release_can_be_moved(file: Path, url: str, tmp_path: Path) -> None:
    path = tmp_path / "holdfast.db"
    path.write_bytes(gzip.decompress(file.read_bytes()))

    assert to_postgres(path, url).sessions >= 6


async def test_a_second_move_brings_what_came_since(filled: Path, url: str) -> None:
    to_postgres(filled, url)
    old = await open_sqlite(filled)
    await old.write(log.append_unheld, "hf-plain", [user("later")], at=10**16)
    await old.close()
    moved = to_postgres(filled, url)

    assert moved.events == len(contents(filled)["event"])


async def test_a_target_that_has_gone_on_by_itself_is_left_alone(filled: Path, url: str) -> None:
    to_postgres(filled, url)
    database = await open_postgres(url)
    session = await database.write(log.append_unheld, "hf-plain", [user("said here")], at=10**16)
    with pytest.raises(Conflict, match="gone on by itself"):
        to_postgres(filled, url)

    assert await database.read(sessions.get, "hf-plain") == session
    await database.close()


async def test_a_target_with_sessions_of_another_store_is_left_alone(filled: Path, url: str, tmp_path: Path) -> None:
    other = tmp_path / "other" / "holdfast.db"
    await make(other)
    to_postgres(other, url)
    with pytest.raises(Conflict, match="another store"):
        to_postgres(filled, url)
    with pytest.raises(Conflict, match="another store"):
        move(PostgresEnd(url), SqliteEnd(filled), nobody)

    assert contents(filled)["meta"] != contents(other)["meta"]


async def test_a_damaged_store_is_not_moved_and_nothing_stays_of_it(filled: Path, url: str) -> None:
    with sqlite3.connect(filled) as link:
        link.execute("UPDATE event SET body = replace(body, 'One file', 'Two file') WHERE session_id = 'hf-pinned'")
    link.close()
    with pytest.raises(Corrupt, match="session hf-pinned: event 7 is not what was written"):
        to_postgres(filled, url)

    assert cluster().execute("SELECT count(*) FROM session", name_of(url)) == [(0,)]


@pytest.mark.parametrize("whose", ["source", "target"])
async def test_a_store_in_use_is_not_moved(filled: Path, url: str, whose: str) -> None:
    def alive(worker: workers.Worker) -> bool:
        return worker.id == "worker-1"

    if whose == "source":
        with pytest.raises(Busy, match=r"worker-1 .* is using .*holdfast.db"):
            move(SqliteEnd(filled), PostgresEnd(url), alive)
    else:
        to_postgres(filled, url)
        with pytest.raises(Busy, match=r"worker-1 .* is using"):
            move(SqliteEnd(filled), PostgresEnd(url), alive)


def test_a_move_that_is_refused_makes_no_store(filled: Path, tmp_path: Path) -> None:
    with pytest.raises(Busy):
        move(SqliteEnd(filled), SqliteEnd(tmp_path / "new" / "holdfast.db"), lambda _: True)

    assert not (tmp_path / "new").exists()


async def test_a_move_that_breaks_off_leaves_the_target_as_it_was(filled: Path, url: str) -> None:
    to_postgres(filled, url)
    database = await open_postgres(url)
    store_id = await database.read(meta.store_id)

    class Broken(SqliteEnd):
        def newest(self) -> int:
            raise OSError("the disk is gone")

    with pytest.raises(OSError, match="the disk is gone"):
        move(Broken(filled), PostgresEnd(url), nobody)

    page = await database.read(sessions.list_page, sessions.EVERYTHING, limit=100)
    assert len(page.sessions) == len(contents(filled)["session"])
    assert await database.read(meta.store_id) == store_id
    await database.close()
