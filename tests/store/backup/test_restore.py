"""A restore makes the store equal to the backup, or leaves it unchanged."""

import asyncio
from pathlib import Path
from random import Random

import pytest

from holdfast.model.errors import Busy, Conflict, Corrupt, Invalid, NotFound, Unsupported
from holdfast.store.backup import backup, restore
from holdfast.store.database import Database
from holdfast.store.repos import sessions
from holdfast.store.sqlite import migrate
from holdfast.store.sqlite.driver import open_sqlite
from tests.cli.seed import Seed
from tests.store.copies import files, heads, new_session, place, store_id
from tests.store.damage import execute, settle


@pytest.fixture
def seed(tmp_path: Path) -> Seed:
    return Seed(tmp_path / "home" / "holdfast.db")


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    return tmp_path / "copy.db"


def test_a_restored_backup_has_the_same_hashes(seed: Seed, copy: Path) -> None:
    seed.sessions(3)
    backup.backup(seed.path, copy)
    then = heads(seed.path)
    seed.sessions(2)
    now = heads(seed.path)

    done = restore.restore(copy, place(seed))

    assert heads(seed.path) == then
    assert done.saved_as is not None and heads(done.saved_as) == now
    assert done.saved_as.stat().st_mode & 0o777 == 0o600
    assert (done.sessions, done.saved_is_damaged) == (3, False)


def test_a_restored_store_has_a_new_id_and_the_backup_keeps_its_own(seed: Seed, copy: Path) -> None:
    seed.session()
    backup.backup(seed.path, copy)
    before = copy.read_bytes()

    done = restore.restore(copy, place(seed))

    assert store_id(seed.path) == done.store_id
    assert copy.read_bytes() == before, "a backup is only read"


def test_restoring_into_an_empty_home_needs_no_option_and_saves_nothing(seed: Seed, copy: Path, tmp_path: Path) -> None:
    seed.session()
    backup.backup(seed.path, copy)
    fresh = Seed(tmp_path / "another" / "holdfast.db")

    done = restore.restore(copy, place(fresh, replace=False))

    assert heads(fresh.path) == heads(seed.path)
    assert done.saved_as is None
    assert files(fresh.path.parent) == ["holdfast.db", "holdfast.db-shm", "holdfast.db-wal"]


def test_existing_sessions_are_not_replaced_without_the_option(seed: Seed, copy: Path) -> None:
    seed.session()
    backup.backup(seed.path, copy)
    seed.session()
    now = heads(seed.path)

    with pytest.raises(Conflict, match="contains 2 sessions"):
        restore.restore(copy, place(seed, replace=False))

    assert heads(seed.path) == now


def test_nothing_is_restored_while_a_worker_is_alive(seed: Seed, copy: Path) -> None:
    seed.session()
    backup.backup(seed.path, copy)
    worker = seed.worker()
    now = heads(seed.path)

    with pytest.raises(Busy, match=worker):
        restore.restore(copy, place(seed, alive=True))

    assert heads(seed.path) == now


def test_workers_in_the_backup_are_marked_as_dead(seed: Seed, copy: Path) -> None:
    session_id = seed.session()
    seed.worker(holds=session_id)
    backup.backup(seed.path, copy)

    restore.restore(copy, place(seed))

    restored = seed.write(lambda tx: sessions.get(tx, session_id))
    assert restored.lease_worker is None
    assert restored.lease_token == 2, "writes of the old holder are refused"


async def test_writes_during_a_restore_are_not_overwritten(tmp_path: Path, copy: Path) -> None:
    seed = Seed(tmp_path / "home" / "holdfast.db")
    database = await open_sqlite(seed.path)
    await database.write(new_session, seed)
    await asyncio.to_thread(backup.backup, seed.path, copy)
    loop = asyncio.get_running_loop()
    added: list[str] = []

    def meddle(stage: str, done: int, total: int) -> None:
        if not added and stage == "copying":
            added.append(asyncio.run_coroutine_threadsafe(database.write(new_session, seed), loop).result())

    with pytest.raises(Busy, match="another process wrote to"):
        await asyncio.to_thread(restore.restore, copy, place(seed), meddle)

    assert await _has(database, added[0]), "acknowledged data is still present"
    await database.close()


async def test_processes_with_the_store_open_see_the_restored_one(tmp_path: Path, copy: Path) -> None:
    seed = Seed(tmp_path / "home" / "holdfast.db")
    database = await open_sqlite(seed.path)
    old = await database.write(new_session, seed)
    await asyncio.to_thread(backup.backup, seed.path, copy)
    late = await database.write(new_session, seed)

    await asyncio.to_thread(restore.restore, copy, place(seed))

    assert await _has(database, old)
    assert not await _has(database, late)
    new = await database.write(new_session, seed)
    assert await _has(database, new), "and continues in it"
    await database.close()
    assert set(heads(seed.path)) == {old, new}


async def _has(database: Database, session_id: str) -> bool:
    return await database.read(lambda tx: tx.one("sessions.get", id=session_id)) is not None


@pytest.mark.parametrize("number", [0, 7, 13, 19])
def test_two_changed_bytes_in_a_backup_are_found(seed: Seed, copy: Path, number: int) -> None:
    for n in range(20):
        seed.session(f"the words of session {n:02} " * 20)
    backup.backup(seed.path, copy)
    now = heads(seed.path)
    content = copy.read_bytes()
    words = b"the words of session %02d " % number
    copy.write_bytes(content.replace(words, words.replace(b"th", b"ht")))

    with pytest.raises(Corrupt, match="damaged"):
        restore.restore(copy, place(seed))

    assert heads(seed.path) == now
    assert files(seed.path.parent) == ["holdfast.db", "holdfast.db-shm", "holdfast.db-wal"]


def test_promise_23_a_backup_with_any_two_bytes_changed_is_refused(seed: Seed, copy: Path) -> None:
    seed.sessions(20, "some words that fill a page " * 20)
    seed.worker()
    backup.backup(seed.path, copy)
    content, now = copy.read_bytes(), heads(seed.path)
    chance = Random(1)
    for _ in range(100):
        damaged = bytearray(content)
        at = chance.randrange(len(damaged) - 90)
        damaged[at : at + 2] = bytes([damaged[at] ^ 0x55, damaged[at + 1] ^ 0x55])
        copy.write_bytes(damaged)
        with pytest.raises((Corrupt, Invalid)):
            restore.restore(copy, place(seed))

    assert heads(seed.path) == now


def test_a_copy_without_a_digest_is_verified_by_its_hashes(seed: Seed, copy: Path) -> None:
    seed.session()
    execute(seed.path, f"VACUUM INTO '{copy}'")

    restore.restore(copy, place(seed))

    assert heads(seed.path) == heads(copy)


def test_a_truncated_backup_is_refused(seed: Seed, copy: Path) -> None:
    seed.sessions(5, "x" * 5000)
    backup.backup(seed.path, copy)
    copy.write_bytes(copy.read_bytes()[: copy.stat().st_size // 2])

    with pytest.raises(Corrupt):
        restore.restore(copy, place(seed))


@pytest.mark.parametrize("content", [b"", b"no database at all " * 500], ids=["empty", "garbage"])
def test_a_file_that_is_not_a_backup_is_refused(seed: Seed, copy: Path, content: bytes) -> None:
    seed.session()
    copy.write_bytes(content)
    now = heads(seed.path)

    with pytest.raises((Invalid, Corrupt)):
        restore.restore(copy, place(seed))

    assert heads(seed.path) == now


def test_a_database_of_another_program_is_neither_restored_nor_replaced(seed: Seed, copy: Path, tmp_path: Path) -> None:
    seed.session()
    backup.backup(seed.path, copy)
    theirs = tmp_path / "theirs.db"
    execute(theirs, "CREATE TABLE photos (name TEXT); INSERT INTO photos VALUES ('holiday')")

    with pytest.raises(Unsupported, match="of another program"):
        restore.restore(theirs, place(seed))
    with pytest.raises(Unsupported, match="of another program"):
        restore.restore(copy, place(Seed(theirs)))


def test_a_missing_file_cannot_be_restored(seed: Seed, tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        restore.restore(tmp_path / "nothing", place(seed))
    with pytest.raises(Invalid):
        restore.restore(tmp_path, place(seed))


def test_an_unreadable_store_is_moved_aside_and_replaced(seed: Seed, copy: Path) -> None:
    seed.session()
    backup.backup(seed.path, copy)
    good = heads(seed.path)
    settle(seed.path)
    seed.path.write_bytes(b"\xff" * seed.path.stat().st_size)

    with pytest.raises(Conflict, match="is not a readable store"):
        restore.restore(copy, place(seed, replace=False))
    done = restore.restore(copy, place(seed))

    assert heads(seed.path) == good
    assert done.saved_as is not None and done.saved_as.read_bytes()[:8] == b"\xff" * 8
    assert done.saved_is_damaged


@pytest.mark.parametrize("page", range(1, 12))
def test_a_store_with_a_damaged_page_is_saved_as_it_is_and_replaced(seed: Seed, copy: Path, page: int) -> None:
    seed.sessions(30, "some words " * 60)
    backup.backup(seed.path, copy)
    good = heads(seed.path)
    settle(seed.path)
    content = bytearray(seed.path.read_bytes())
    content[page * 4096 : page * 4096 + 4096] = b"\x05" * 4096
    seed.path.write_bytes(content)

    done = restore.restore(copy, place(seed))

    assert heads(seed.path) == good
    assert done.saved_as is not None and done.saved_is_damaged


def test_a_backup_can_replace_a_store_of_a_later_release(seed: Seed, copy: Path) -> None:
    seed.session()
    backup.backup(seed.path, copy)
    good = heads(seed.path)
    execute(
        seed.path, f"ALTER TABLE worker ADD COLUMN mood TEXT; PRAGMA user_version = {migrate.known()[-1].number + 1}"
    )

    done = restore.restore(copy, place(seed))

    assert heads(seed.path) == good
    assert done.saved_as is not None
