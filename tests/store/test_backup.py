"""A backup is whole and proved, or it is not there; a restore leaves the old store or the new one, nothing between."""

import asyncio
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from random import Random
from typing import IO

import pytest

from holdfast.model.errors import Busy, Conflict, Corrupt, Invalid, NotFound, Unsupported
from holdfast.store import backup, meta, migrate, restore, sessions, verify
from holdfast.store.database import Database
from holdfast.store.restore import Place
from holdfast.store.sqlite import SqliteTransaction, connect, open_sqlite
from tests.cli.seed import Seed
from tests.crash import disk
from tests.store.damage import execute, settle

STRACE = shutil.which("strace")


@pytest.fixture
def seed(tmp_path: Path) -> Seed:
    return Seed(tmp_path / "home" / "holdfast.db")


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    return tmp_path / "copy.db"


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


# Backup.


def test_a_backup_is_one_private_file_with_everything_in_it(seed: Seed, copy: Path, tmp_path: Path) -> None:
    seed.sessions(5, "hello \udc80", turns=3)

    done = backup.backup(seed.path, copy)

    assert heads(copy) == heads(seed.path)
    assert (done.report.sessions, done.report.events) == (5, 110)
    assert copy.stat().st_mode & 0o777 == 0o600
    assert done.report.ok


def test_nothing_is_left_beside_a_backup(seed: Seed, copy: Path, tmp_path: Path) -> None:
    seed.session()

    backup.backup(seed.path, copy)

    assert files(tmp_path) == ["copy.db", "home"]


async def test_a_backup_is_one_moment_of_a_store_that_others_write_to(tmp_path: Path, copy: Path) -> None:
    seed = Seed(tmp_path / "home" / "holdfast.db")
    database = await open_sqlite(seed.path)
    ids = [await database.write(_session, seed) for _ in range(20)]
    stop = asyncio.Event()

    async def keep_writing() -> int:
        count = 0
        while not stop.is_set():
            await database.write(sessions.rename, ids[count % 20], f"title {count}", at=seed.clock.now())
            count += 1
        return count

    writer = asyncio.create_task(keep_writing())
    reports = [await asyncio.to_thread(backup.backup, seed.path, copy, replace=True) for _ in range(5)]
    stop.set()
    written = await writer
    await database.close()

    assert written > 5, "the writer was not held up"
    assert all(done.report.ok and done.report.sessions == 20 for done in reports)


def _session(tx, seed: Seed) -> str:  # type: ignore[no-untyped-def]
    from holdfast.model.event import SessionOpened
    from holdfast.model.ids import SESSION

    session, _ = sessions.create(tx, seed.ids.make(SESSION), SessionOpened(source="chat"), at=seed.clock.now())
    return session.id


def test_a_file_that_is_there_is_replaced_only_when_asked(seed: Seed, copy: Path) -> None:
    seed.session()
    copy.write_text("mine")

    with pytest.raises(Invalid, match="--force"):
        backup.backup(seed.path, copy)
    assert copy.read_text() == "mine"

    backup.backup(seed.path, copy, replace=True)
    assert heads(copy) == heads(seed.path)


def test_the_store_is_never_its_own_backup(seed: Seed, tmp_path: Path) -> None:
    seed.session()
    (tmp_path / "link.db").symlink_to(seed.path)

    for target in (seed.path, tmp_path / "link.db"):
        with pytest.raises(Invalid, match="the store itself"):
            backup.backup(seed.path, target, replace=True)
    with pytest.raises(Invalid, match="the store itself"):
        restore.restore(tmp_path / "link.db", place(seed))


def test_a_damaged_store_gives_no_backup(seed: Seed, copy: Path, tmp_path: Path) -> None:
    session_id = seed.session()
    execute(seed.path, f"UPDATE event SET body = replace(body, 'hello', 'HELLO') WHERE session_id = '{session_id}'")

    with pytest.raises(Corrupt, match=f"nothing was saved.*{session_id}.*its hash does not fit"):
        backup.backup(seed.path, copy)

    assert files(tmp_path) == ["home"]


def test_what_a_dead_backup_left_is_no_hindrance(seed: Seed, copy: Path, tmp_path: Path) -> None:
    seed.session()
    (tmp_path / "copy.db.partial").write_bytes(b"half a page" * 1000)
    (tmp_path / "copy.db.partial-journal").write_bytes(b"half a journal" * 1000)

    backup.backup(seed.path, copy)

    assert files(tmp_path) == ["copy.db", "home"]


def test_two_backups_to_one_file_do_not_mix(seed: Seed, copy: Path) -> None:
    seed.session()

    with backup.only_ours(copy.with_name("copy.db.partial")), pytest.raises(Busy):
        backup.backup(seed.path, copy)


def test_a_full_disk_leaves_nothing_under_the_name(seed: Seed, tmp_path: Path) -> None:
    seed.session("x" * 50_000, turns=40)

    code = (
        "import resource, signal, sys; from pathlib import Path; from holdfast.store import backup;"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN); resource.setrlimit(resource.RLIMIT_FSIZE, (500_000,) * 2);"
        "backup.backup(Path(sys.argv[1]), Path(sys.argv[2]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, seed.path, tmp_path / "copy.db"], capture_output=True, check=False
    )

    assert b"holdfast.model.errors." in done.stderr and done.returncode == 1
    assert files(tmp_path) == ["home"]


# Restore.


def test_a_backup_comes_back_to_the_last_hash(seed: Seed, copy: Path) -> None:
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


def test_into_an_empty_home_nothing_is_asked_and_nothing_is_saved(seed: Seed, copy: Path, tmp_path: Path) -> None:
    seed.session()
    backup.backup(seed.path, copy)
    fresh = Seed(tmp_path / "another" / "holdfast.db")

    done = restore.restore(copy, place(fresh, replace=False))

    assert heads(fresh.path) == heads(seed.path)
    assert done.saved_as is None
    assert files(fresh.path.parent) == ["holdfast.db", "holdfast.db-shm", "holdfast.db-wal"]


def test_sessions_that_are_there_are_not_replaced_unasked(seed: Seed, copy: Path) -> None:
    seed.session()
    backup.backup(seed.path, copy)
    seed.session()
    now = heads(seed.path)

    with pytest.raises(Conflict, match="holds 2 sessions"):
        restore.restore(copy, place(seed, replace=False))

    assert heads(seed.path) == now


def test_nothing_is_restored_while_a_worker_lives(seed: Seed, copy: Path) -> None:
    seed.session()
    backup.backup(seed.path, copy)
    worker = seed.worker()
    now = heads(seed.path)

    with pytest.raises(Busy, match=worker):
        restore.restore(copy, place(seed, alive=True))

    assert heads(seed.path) == now


def test_workers_of_the_time_of_the_backup_are_buried(seed: Seed, copy: Path) -> None:
    session_id = seed.session()
    seed.worker(holds=session_id)
    backup.backup(seed.path, copy)

    restore.restore(copy, place(seed))

    restored = seed.write(lambda tx: sessions.get(tx, session_id))
    assert restored.lease_worker is None
    assert restored.lease_token == 2, "what the old holder still tries to write does not fit"


async def test_who_writes_while_a_restore_prepares_is_not_overwritten(tmp_path: Path, copy: Path) -> None:
    seed = Seed(tmp_path / "home" / "holdfast.db")
    database = await open_sqlite(seed.path)
    await database.write(_session, seed)
    await asyncio.to_thread(backup.backup, seed.path, copy)
    loop = asyncio.get_running_loop()
    added: list[str] = []

    def meddle(stage: str, done: int, total: int) -> None:
        if not added and stage == "copying":
            added.append(asyncio.run_coroutine_threadsafe(database.write(_session, seed), loop).result())

    with pytest.raises(Busy, match="written to meanwhile"):
        await asyncio.to_thread(restore.restore, copy, place(seed), meddle)

    assert await _has(database, added[0]), "what was acknowledged is still there"
    await database.close()


async def test_who_has_the_store_open_sees_the_restored_one(tmp_path: Path, copy: Path) -> None:
    seed = Seed(tmp_path / "home" / "holdfast.db")
    database = await open_sqlite(seed.path)
    old = await database.write(_session, seed)
    await asyncio.to_thread(backup.backup, seed.path, copy)
    late = await database.write(_session, seed)

    await asyncio.to_thread(restore.restore, copy, place(seed))

    assert await _has(database, old)
    assert not await _has(database, late)
    new = await database.write(_session, seed)
    assert await _has(database, new), "and goes on in it"
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


def test_a_backup_with_any_two_bytes_changed_is_refused(seed: Seed, copy: Path) -> None:
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


def test_a_copy_that_was_made_by_other_means_is_judged_by_its_hashes(seed: Seed, copy: Path) -> None:
    seed.session()
    execute(seed.path, f"VACUUM INTO '{copy}'")

    restore.restore(copy, place(seed))

    assert heads(seed.path) == heads(copy)


def test_a_backup_that_was_cut_off_is_refused(seed: Seed, copy: Path) -> None:
    seed.sessions(5, "x" * 5000)
    backup.backup(seed.path, copy)
    copy.write_bytes(copy.read_bytes()[: copy.stat().st_size // 2])

    with pytest.raises(Corrupt):
        restore.restore(copy, place(seed))


@pytest.mark.parametrize("content", [b"", b"no database at all " * 500], ids=["empty", "garbage"])
def test_what_is_no_backup_is_refused(seed: Seed, copy: Path, content: bytes) -> None:
    seed.session()
    copy.write_bytes(content)
    now = heads(seed.path)

    with pytest.raises((Invalid, Corrupt)):
        restore.restore(copy, place(seed))

    assert heads(seed.path) == now


def test_a_database_of_others_is_neither_restored_nor_replaced(seed: Seed, copy: Path, tmp_path: Path) -> None:
    seed.session()
    backup.backup(seed.path, copy)
    theirs = tmp_path / "theirs.db"
    execute(theirs, "CREATE TABLE photos (name TEXT); INSERT INTO photos VALUES ('holiday')")

    with pytest.raises(Unsupported, match="not one of Holdfast's"):
        restore.restore(theirs, place(seed))
    with pytest.raises(Unsupported, match="not one of Holdfast's"):
        restore.restore(copy, place(Seed(theirs)))


def test_there_must_be_a_file_to_restore(seed: Seed, tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        restore.restore(tmp_path / "nothing", place(seed))
    with pytest.raises(Invalid):
        restore.restore(tmp_path, place(seed))


def test_a_store_damaged_beyond_reading_is_moved_aside_and_replaced(seed: Seed, copy: Path) -> None:
    seed.session()
    backup.backup(seed.path, copy)
    good = heads(seed.path)
    settle(seed.path)
    seed.path.write_bytes(b"\xff" * seed.path.stat().st_size)

    with pytest.raises(Conflict, match="cannot be read as a store"):
        restore.restore(copy, place(seed, replace=False))
    done = restore.restore(copy, place(seed))

    assert heads(seed.path) == good
    assert done.saved_as is not None and done.saved_as.read_bytes()[:8] == b"\xff" * 8
    assert done.saved_is_damaged


@pytest.mark.parametrize("page", range(1, 12))
def test_a_store_with_a_bad_page_is_saved_as_it_is_and_replaced(seed: Seed, copy: Path, page: int) -> None:
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


def test_one_can_go_back_from_a_store_of_a_later_release(seed: Seed, copy: Path) -> None:
    seed.session()
    backup.backup(seed.path, copy)
    good = heads(seed.path)
    execute(
        seed.path, f"ALTER TABLE worker ADD COLUMN mood TEXT; PRAGMA user_version = {migrate.known()[-1].number + 1}"
    )

    done = restore.restore(copy, place(seed))

    assert heads(seed.path) == good
    assert done.saved_as is not None


# Death in the middle, of real processes.

BACKUP = "from holdfast.store import backup; backup.backup(Path(sys.argv[1]), Path(sys.argv[2]), replace=True)"
RESTORE = (
    "from holdfast.store import restore;"
    "home = Path(sys.argv[1]);"
    "place = restore.Place(store=home, home=home.parent, replace=True, alive=lambda worker: False, at=0);"
    "restore.restore(Path(sys.argv[2]), place)"
)


def run_until(nth: int, call: str, code: str, *args: Path) -> int:
    """Run the code and kill it at the nth such system call; its exit status."""
    assert STRACE is not None
    inject = f"inject={call}:signal=SIGKILL:when={nth}"
    program = [sys.executable, "-c", f"import sys; from pathlib import Path; {code}", *map(str, args)]
    return subprocess.run(
        [STRACE, "-f", "-o", "/dev/null", "-e", f"trace={call}", "-e", inject, *program],
        check=False,
        capture_output=True,
    ).returncode


def moments(most: int) -> list[int]:
    """Every call of the first few, and then ever rarer ones."""
    return sorted({*range(1, 16), *(round(1.7**n) for n in range(2, 14) if 1.7**n <= most)})


@pytest.mark.crash
@pytest.mark.timeout(300)
@pytest.mark.skipif(STRACE is None, reason="needs strace")
@pytest.mark.parametrize("call", ["pwrite64", "fdatasync", "fsync", "rename"])
def test_a_backup_killed_at_any_moment_leaves_the_last_good_one(seed: Seed, copy: Path, call: str) -> None:
    seed.sessions(10, "some words " * 200, turns=2)
    backup.backup(seed.path, copy)
    old, _ = heads(copy), seed.sessions(3)
    new = heads(seed.path)
    killed = 0
    for nth in moments(400):
        status = run_until(nth, call, BACKUP, seed.path, copy)
        found = heads(copy)
        assert found in (old, new)
        killed += status == -signal.SIGKILL or status == 128 + signal.SIGKILL
        if status == 0:
            assert found == new
            break
    backup.backup(seed.path, copy, replace=True)
    assert heads(copy) == new and backup.prove(copy, None, current=True).ok
    assert killed > 0 or call == "fdatasync", "the scenario makes such calls"


@pytest.mark.crash
@pytest.mark.timeout(300)
@pytest.mark.skipif(STRACE is None, reason="needs strace")
@pytest.mark.parametrize("call", ["pwrite64", "fdatasync", "fsync", "ftruncate"])
def test_a_restore_killed_at_any_moment_leaves_the_old_store_or_the_new(seed: Seed, copy: Path, call: str) -> None:
    seed.sessions(10, "some words " * 200, turns=2)
    backup.backup(seed.path, copy)
    old, _ = heads(copy), seed.sessions(3)
    new = heads(seed.path)
    killed = 0
    for nth in moments(1500):
        status = run_until(nth, call, RESTORE, seed.path, copy)
        found = heads(seed.path)
        assert found in (old, new), f"after the {nth}. {call}"
        assert asyncio.run(_is_sound(seed.path))
        killed += status == -signal.SIGKILL or status == 128 + signal.SIGKILL
        if status == 0:
            assert found == old
            break
        if found == old:  # it got as far as the commit: put the newer one back
            saved = max(seed.path.parent.glob("before-restore-*.db"), key=lambda path: len(heads(path)))
            restore.restore(saved, place(seed))
    restore.restore(copy, place(seed))
    assert heads(seed.path) == old
    assert killed > 0
    assert not list(seed.path.parent.glob("*.restoring*")), "no rubbish stays"


async def _is_sound(path: Path) -> bool:
    database = await open_sqlite(path)
    try:
        return (await verify.verify(database)).ok
    finally:
        await database.close()


# And of the whole machine.

SLOWLY = (
    "import sys; from pathlib import Path; from holdfast.store import backup, restore; backup.PAGES = 10;"
    "say = lambda *words: print(*words, flush=True);"
    "home = Path(sys.argv[1]);"
    "place = restore.Place(store=home, home=home.parent, replace=True, alive=lambda worker: False, at=0);"
    "restore.restore(Path(sys.argv[2]), place, say); say('done')"
)


@pytest.mark.crash
@pytest.mark.timeout(300)
@pytest.mark.parametrize("stage", ["copying", "checking", "restoring", "done"])
def test_a_power_cut_during_a_restore_leaves_the_old_store_or_the_new(tmp_path: Path, stage: str) -> None:
    copy = tmp_path / "copy.db"
    with disk.mounted(tmp_path, 48) as drive:
        seed = Seed(drive.home / "holdfast.db")
        seed.sessions(10, "some words " * 200, turns=2)
        backup.backup(seed.path, copy)
        old, _ = heads(copy), seed.sessions(3)
        new = heads(seed.path)

        with subprocess.Popen(
            [sys.executable, "-c", SLOWLY, seed.path, copy], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        ) as child:
            assert child.stdout is not None
            seen = sum(1 for _ in _until(child.stdout, stage))
            drive.cut_power()
            child.kill()
        drive.unmount()
        drive.mount()

        found = heads(seed.path)
        assert seen > 0
        assert found == (old if stage == "done" else found)
        assert found in (old, new)
        assert asyncio.run(_is_sound(seed.path))
        restore.restore(copy, place(seed))
        assert heads(seed.path) == old


def _until(lines: IO[bytes], stage: str) -> Iterator[bytes]:
    """The lines up to the third of this stage, or to the end of them."""
    left = 3
    for line in lines:
        yield line
        left -= line.startswith(stage.encode())
        if left == 0:
            return
