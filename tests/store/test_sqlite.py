"""What the SQLite driver promises beyond the contract: a small WAL, patience, and plain words when the file fails us."""

import asyncio
import os
import resource
import shutil
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import apsw
import pytest

from holdfast.model.errors import Corrupt, NotSaved, ReadOnly, Unavailable
from holdfast.model.event import SessionOpened, UserSaid
from holdfast.model.message import Text
from holdfast.store import log, meta, sessions
from holdfast.store.database import Transaction
from holdfast.store.sqlite import SqliteDatabase, open_sqlite
from holdfast.store.sqlite_connection import connect

MEGABYTE = 1024 * 1024
PATIENCE = 20.0
"""Seconds after which a test that waits for something gives up."""
HOLD = """
import sys, apsw
connection = apsw.Connection(sys.argv[1])
connection.set_busy_timeout(int(sys.argv[2]))
try:
    connection.execute("BEGIN IMMEDIATE")
except apsw.BusyError:
    print("busy", flush=True)
else:
    print("held", flush=True)
    sys.stdin.readline()
    connection.execute("COMMIT")
connection.close()
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "holdfast.db"


@asynccontextmanager
async def opened(path: Path, **options: float) -> AsyncIterator[SqliteDatabase]:
    database = await open_sqlite(path, **options)
    try:
        yield database
    finally:
        await database.close()


class Holder:
    """Another process that tries to take the write lock, and keeps it until it is told to let go."""

    def __init__(self, path: Path, patience_millis: int = 10_000) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", HOLD, str(path), str(patience_millis)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.outcome = self._process.stdout.readline().strip()

    def let_go(self) -> None:
        self._process.communicate("go\n")


@contextmanager
def unwritable(file: Path) -> Iterator[None]:
    """Make the file or folder one that nobody can write to, root included."""
    if os.geteuid() != 0:
        before = file.stat().st_mode
        file.chmod(0o500)
        yield
        file.chmod(before)
        return
    chattr = shutil.which("chattr")
    if chattr is None or subprocess.run([chattr, "+i", file], capture_output=True, check=False).returncode != 0:
        pytest.skip("root cannot make a file read-only here")
    yield
    subprocess.run([chattr, "-i", file], check=True)


def put(tx: Transaction, key: str, value: str) -> None:
    meta.put(tx, key, value)


def a_megabyte(number: int) -> str:
    """Different each time: SQLite does not write what has not changed."""
    return f"{number:016}" * (MEGABYTE // 16)


def wal_of(path: Path) -> Path:
    return path.with_name(path.name + "-wal")


# the settings


def test_every_connection_has_the_settings_that_durability_rests_on(path: Path) -> None:
    path.touch()
    connection = connect(path)

    expected = {"journal_mode": "wal", "synchronous": 2, "foreign_keys": 1, "trusted_schema": 0, "auto_vacuum": 2}
    assert {name: connection.pragma(name) for name in expected} == expected
    connection.close()


def test_sqlite_is_newer_than_the_fault_that_could_corrupt_a_wal() -> None:
    assert tuple(map(int, apsw.sqlite_lib_version().split("."))) >= (3, 51, 3)


# the WAL


async def test_the_wal_stays_under_64_megabytes_while_readers_keep_coming(path: Path) -> None:
    async with opened(path) as database:

        async def keep_reading() -> None:
            while True:
                await database.read(lambda tx: [meta.get(tx, "small") for _ in range(5)])

        readers = [asyncio.create_task(keep_reading()) for _ in range(6)]
        largest = 0
        for number in range(80):
            await database.write(put, f"key {number % 3}", a_megabyte(number))
            largest = max(largest, wal_of(path).stat().st_size)
        for reader in readers:
            reader.cancel()
        await asyncio.gather(*readers, return_exceptions=True)

        assert largest <= 64 * MEGABYTE


async def test_a_reader_who_stays_stops_no_writer(path: Path) -> None:
    started, gate = threading.Event(), threading.Event()

    def stay(tx: Transaction) -> str | None:
        meta.get(tx, "key")
        started.set()
        assert gate.wait(PATIENCE)
        return meta.get(tx, "key")

    async with opened(path) as database:
        reader = asyncio.create_task(database.read(stay))
        assert await asyncio.to_thread(started.wait, PATIENCE)
        for number in range(50):  # far enough for a checkpoint that would rather wait
            await database.write(put, "key", a_megabyte(number))
        gate.set()

        assert await reader is None, "it still sees the moment it began"
        assert await database.read(meta.get, "key") == a_megabyte(49)


async def test_the_wal_is_kept_when_the_store_is_closed(path: Path) -> None:
    async with opened(path) as database:
        await database.write(put, "key", "value")

    assert wal_of(path).stat().st_size > 0


async def test_a_closed_store_is_whole_without_its_wal(path: Path) -> None:
    async with opened(path) as database:
        await database.write(put, "key", "value")
    for end in ("-wal", "-shm"):
        path.with_name(path.name + end).unlink()

    async with opened(path) as database:
        assert await database.read(meta.get, "key") == "value"


async def test_writes_that_wait_together_share_a_commit(path: Path) -> None:
    started, gate = threading.Event(), threading.Event()

    def hold(tx: Transaction) -> None:
        started.set()
        assert gate.wait(PATIENCE)

    def frames() -> int:
        return connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()[1]

    async with opened(path) as database:
        connection = apsw.Connection(str(path))
        await database.write(put, "key", "value")
        before = frames()
        holder = asyncio.create_task(database.write(hold))
        assert await asyncio.to_thread(started.wait, PATIENCE)
        writes = [asyncio.create_task(database.write(put, "key", str(number))) for number in range(100)]
        await asyncio.sleep(0)
        gate.set()
        await asyncio.gather(holder, *writes)

        assert frames() - before <= 10, "each commit of its own would add a page at least"
        connection.close()


# other processes


async def test_a_write_waits_for_another_process_and_then_gets_through(path: Path) -> None:
    async with opened(path) as database:
        holder = await asyncio.to_thread(Holder, path)
        write = asyncio.create_task(database.write(put, "key", "value"))
        await asyncio.sleep(0)
        assert await database.read(meta.get, "key") is None, "readers need not wait"
        assert not write.done()
        await asyncio.to_thread(holder.let_go)

        async with asyncio.timeout(PATIENCE):
            await write
        assert await database.read(meta.get, "key") == "value"


async def test_a_store_that_stays_locked_is_unavailable_and_works_again_afterwards(path: Path) -> None:
    async with opened(path, busy_seconds=0.2) as database:
        holder = await asyncio.to_thread(Holder, path)
        with pytest.raises(Unavailable, match="locked by another process") as caught:
            await database.write(put, "key", "value")
        assert str(path) in str(caught.value)
        await asyncio.to_thread(holder.let_go)

        assert await database.read(meta.get, "key") is None
        await database.write(put, "key", "value")
        assert await database.read(meta.get, "key") == "value"


async def test_writes_that_wait_together_for_a_locked_store_give_up_together(path: Path) -> None:
    async with opened(path, busy_seconds=1) as database:
        holder = await asyncio.to_thread(Holder, path)
        writes = [asyncio.create_task(database.write(put, f"key {number}", "value")) for number in range(100)]
        async with asyncio.timeout(PATIENCE):
            outcomes = await asyncio.gather(*writes, return_exceptions=True)
        await asyncio.to_thread(holder.let_go)

        assert {type(outcome) for outcome in outcomes} == {Unavailable}
        await database.write(put, "key", "value")


async def test_opening_and_closing_the_store_again_drops_no_lock_of_this_process(path: Path) -> None:
    started, gate = threading.Event(), threading.Event()

    def hold(tx: Transaction) -> None:
        meta.put(tx, "key", "value")
        started.set()
        assert gate.wait(PATIENCE)

    async with opened(path) as database:
        write = asyncio.create_task(database.write(hold))
        assert await asyncio.to_thread(started.wait, PATIENCE)
        async with opened(path) as second:
            assert await second.read(meta.get, "key") is None
        other = await asyncio.to_thread(Holder, path, 0)
        gate.set()
        await write

        assert other.outcome == "busy", "the lock of the write under way must still stand"
        await asyncio.to_thread(other.let_go)


# files that fail us


async def test_a_store_that_cannot_be_written_says_so_and_works_when_it_can_again(path: Path) -> None:
    async with opened(path) as database:
        await database.write(put, "key", "old")

    with unwritable(path):
        with pytest.raises(ReadOnly) as caught:
            async with opened(path) as database:
                await database.write(put, "key", "new")
        assert str(path) in str(caught.value)

    async with opened(path) as database:
        assert await database.read(meta.get, "key") == "old"
        await database.write(put, "key", "new")
        assert await database.read(meta.get, "key") == "new"


async def test_a_new_store_in_a_folder_that_cannot_be_written_says_so(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()

    with unwritable(home), pytest.raises(ReadOnly, match="home"):
        await open_sqlite(home / "holdfast.db")


@pytest.mark.parametrize("few", range(7))
async def test_a_process_with_too_many_open_files_is_not_told_that_the_store_is_read_only(path: Path, few: int) -> None:
    async with opened(path) as database:
        await database.write(put, "key", "old")
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    lowest = os.dup(0)
    os.close(lowest)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest + few, before[1]))
    try:
        database = await open_sqlite(path)
    except NotSaved as e:
        assert not isinstance(e, ReadOnly)
        assert "too many" in str(e).lower()
    else:
        await database.close()
        assert few > 2, "a database, its WAL and its shared memory are files"
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)

    async with opened(path) as database:
        assert await database.read(meta.get, "key") == "old"


async def test_a_damaged_page_is_reported_with_the_file_which_stays_as_it_is(path: Path) -> None:
    async with opened(path) as database:
        await database.write(sessions.create, "hf-1", SessionOpened(source="chat"), at=1)
        words = [UserSaid(turn_id="turn-1", parts=(Text("x" * 3_000),)) for _ in range(300)]
        session = await database.write(log.append_unheld, "hf-1", words, at=2)
    for end in ("-wal", "-shm"):
        path.with_name(path.name + end).unlink()
    damaged = bytearray(path.read_bytes())
    middle = len(damaged) // 2
    damaged[middle:] = b"\xff" * (len(damaged) - middle)
    path.write_bytes(damaged)

    async with opened(path) as database:
        with pytest.raises(Corrupt) as caught:
            await database.read(log.read_whole, session)
        assert str(path) in str(caught.value)
        assert "left as it is" in str(caught.value)
        assert (await database.read(sessions.get, "hf-1")).seq == 301, "what is sound can still be read"
    assert path.read_bytes() == bytes(damaged)


async def test_an_error_in_one_read_leaves_the_next_one_alone(path: Path) -> None:
    def ask_nonsense(tx: Transaction) -> None:
        tx.one("no.such.query")

    async with opened(path) as database:
        for _ in range(20):
            with pytest.raises(KeyError):
                await database.read(ask_nonsense)
        await database.write(put, "key", "value")
        assert await database.read(meta.get, "key") == "value"
