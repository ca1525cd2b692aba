"""What the SQLite driver promises beyond the contract: a small WAL, waiting for locks, and clear errors when the file fails."""

import asyncio
import os
import resource
import shutil
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing, asynccontextmanager, contextmanager, suppress
from pathlib import Path

import apsw
import pytest

from holdfast.model.errors import Corrupt, Invalid, NotSaved, ReadOnly, Unavailable
from holdfast.model.event import SessionOpened, UserSaid
from holdfast.model.message import Text
from holdfast.store.database import Transaction
from holdfast.store.repos import log, meta, sessions
from holdfast.store.sqlite import file_identity
from holdfast.store.sqlite.connection import connect
from holdfast.store.sqlite.driver import READERS, SqliteDatabase, open_sqlite

MEGABYTE = 1024 * 1024
TIMEOUT = 20.0
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


def descriptors(path: Path) -> list[str]:
    """The files in the directory of the store that this process has open."""
    links = []
    for descriptor in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # that of the listing itself
            links.append(str(descriptor.readlink()))
    return [link for link in links if link.startswith(str(path.parent))]


class Holder:
    """Another process that tries to take the write lock, and keeps it until it is told to release it."""

    def __init__(self, path: Path, timeout_millis: int = 10_000) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", HOLD, str(path), str(timeout_millis)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.outcome = self._process.stdout.readline().strip()

    def release(self) -> None:
        self._process.communicate("go\n")


@contextmanager
def unwritable(file: Path) -> Iterator[None]:
    """Make the file or directory unwritable, even for root."""
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


def test_every_connection_has_the_settings_that_durability_needs(path: Path) -> None:
    path.touch()
    connection = connect(path)

    expected = {"journal_mode": "wal", "synchronous": 2, "foreign_keys": 1, "trusted_schema": 0, "auto_vacuum": 2}
    assert {name: connection.pragma(name) for name in expected} == expected
    connection.close()


def test_the_sqlite_version_has_no_known_wal_corruption_bug() -> None:
    assert tuple(map(int, apsw.sqlite_lib_version().split("."))) >= (3, 51, 3)


# the WAL


@pytest.mark.slow
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


async def test_a_long_reader_stops_no_writer(path: Path) -> None:
    started, gate = threading.Event(), threading.Event()

    def stay(tx: Transaction) -> str | None:
        meta.get(tx, "key")
        started.set()
        assert gate.wait(TIMEOUT)
        return meta.get(tx, "key")

    async with opened(path) as database:
        reader = asyncio.create_task(database.read(stay))
        assert await asyncio.to_thread(started.wait, TIMEOUT)
        for number in range(50):  # enough for a checkpoint that has to wait
            await database.write(put, "key", a_megabyte(number))
        gate.set()

        assert await reader is None, "it still sees its snapshot"
        assert await database.read(meta.get, "key") == a_megabyte(49)


async def test_the_wal_is_kept_when_the_store_is_closed(path: Path) -> None:
    async with opened(path) as database:
        await database.write(put, "key", "value")

    assert wal_of(path).stat().st_size > 0


async def test_a_closed_store_is_complete_without_its_wal(path: Path) -> None:
    async with opened(path) as database:
        await database.write(put, "key", "value")
    for end in ("-wal", "-shm"):
        path.with_name(path.name + end).unlink()

    async with opened(path) as database:
        assert await database.read(meta.get, "key") == "value"


async def test_queued_writes_share_a_commit(path: Path) -> None:
    started, gate = threading.Event(), threading.Event()

    def hold(tx: Transaction) -> None:
        started.set()
        assert gate.wait(TIMEOUT)

    def frames() -> int:
        return connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()[1]

    async with opened(path) as database:
        connection = apsw.Connection(str(path))
        await database.write(put, "key", "value")
        before = frames()
        holder = asyncio.create_task(database.write(hold))
        assert await asyncio.to_thread(started.wait, TIMEOUT)
        writes = [asyncio.create_task(database.write(put, "key", str(number))) for number in range(100)]
        await asyncio.sleep(0)
        gate.set()
        await asyncio.gather(holder, *writes)

        assert frames() - before <= 10, "separate commits would add at least a page each"
        connection.close()


# other processes


@pytest.mark.process
async def test_a_write_waits_for_another_process_and_then_succeeds(path: Path) -> None:
    async with opened(path) as database:
        holder = await asyncio.to_thread(Holder, path)
        write = asyncio.create_task(database.write(put, "key", "value"))
        await asyncio.sleep(0)
        assert await database.read(meta.get, "key") is None, "readers need not wait"
        assert not write.done()
        await asyncio.to_thread(holder.release)

        async with asyncio.timeout(TIMEOUT):
            await write
        assert await database.read(meta.get, "key") == "value"


@pytest.mark.process
async def test_a_store_that_stays_locked_is_unavailable_and_works_again_afterwards(path: Path) -> None:
    async with opened(path, busy_seconds=0.2) as database:
        holder = await asyncio.to_thread(Holder, path)
        with pytest.raises(Unavailable, match="another process has locked") as caught:
            await database.write(put, "key", "value")
        assert str(path) in str(caught.value)
        await asyncio.to_thread(holder.release)

        assert await database.read(meta.get, "key") is None
        await database.write(put, "key", "value")
        assert await database.read(meta.get, "key") == "value"


@pytest.mark.process
async def test_queued_writes_for_a_locked_store_fail_together(path: Path) -> None:
    async with opened(path, busy_seconds=1) as database:
        holder = await asyncio.to_thread(Holder, path)
        writes = [asyncio.create_task(database.write(put, f"key {number}", "value")) for number in range(100)]
        async with asyncio.timeout(TIMEOUT):
            outcomes = await asyncio.gather(*writes, return_exceptions=True)
        await asyncio.to_thread(holder.release)

        assert {type(outcome) for outcome in outcomes} == {Unavailable}
        await database.write(put, "key", "value")


@pytest.mark.process
async def test_opening_and_closing_the_store_again_drops_no_lock_of_this_process(path: Path) -> None:
    started, gate = threading.Event(), threading.Event()

    def hold(tx: Transaction) -> None:
        meta.put(tx, "key", "value")
        started.set()
        assert gate.wait(TIMEOUT)

    async with opened(path) as database:
        write = asyncio.create_task(database.write(hold))
        assert await asyncio.to_thread(started.wait, TIMEOUT)
        async with opened(path) as second:
            assert await second.read(meta.get, "key") is None
        other = await asyncio.to_thread(Holder, path, 0)
        gate.set()
        await write

        assert other.outcome == "busy", "the lock of the running write must still be held"
        await asyncio.to_thread(other.release)


# failing files


@pytest.mark.process
async def test_a_store_that_cannot_be_written_is_an_error_and_works_again_afterwards(path: Path) -> None:
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


@pytest.mark.process
async def test_a_new_store_in_an_unwritable_directory_is_an_error(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()

    with unwritable(home), pytest.raises(ReadOnly, match="home"):
        await open_sqlite(home / "holdfast.db")


@pytest.mark.parametrize("few", range(18))
async def test_too_many_open_files_are_not_reported_as_a_read_only_store(path: Path, few: int) -> None:
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


async def test_a_damaged_page_is_reported_with_its_file_which_is_left_unchanged(path: Path) -> None:
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
            await database.read(log.read_complete, session)
        assert str(path) in str(caught.value)
        assert "left unchanged" in str(caught.value)
        assert (await database.read(sessions.get, "hf-1")).seq == 301, "undamaged data can still be read"
    assert path.read_bytes() == bytes(damaged)


async def test_a_name_that_is_not_text_can_be_neither_read_nor_written(path: Path) -> None:
    async with opened(path) as database:
        with pytest.raises(Invalid, match="lone surrogates"):
            await database.read(meta.get, "\udcff")
        with pytest.raises(Invalid, match="lone surrogates"):
            await database.write(put, "\udcff", "value")


async def test_an_error_in_one_read_does_not_affect_the_next(path: Path) -> None:
    def ask_nonsense(tx: Transaction) -> None:
        tx.one("no.such.query")

    async with opened(path) as database:
        for _ in range(20):
            with pytest.raises(KeyError):
                await database.read(ask_nonsense)
        await database.write(put, "key", "value")
        assert await database.read(meta.get, "key") == "value"


async def test_a_read_is_refused_only_once_a_removed_wal_is_in_the_database(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_identity, "FRESH_SECONDS", 0)
    database = await open_sqlite(path)
    await database.write(meta.put, "kept", "yes")
    for end in ("-wal", "-shm"):
        path.with_name(path.name + end).unlink()

    with pytest.raises(Unavailable, match="removed"):
        await database.read(meta.get, "kept")

    found = apsw.Connection(f"file:{path}?immutable=1", flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI)
    assert found.execute("SELECT value FROM meta WHERE key = 'kept'").get == "yes"
    found.close()
    await database.close()


async def test_a_removed_wal_that_a_reader_blocked_is_saved_when_the_store_closes(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_identity, "FRESH_SECONDS", 0)
    monkeypatch.setattr(file_identity, "RESCUE_SECONDS", 0)
    database = await open_sqlite(path)
    reading, go_on = threading.Event(), threading.Event()

    def read_slowly(tx: Transaction) -> None:
        meta.get(tx, "kept")
        reading.set()
        go_on.wait(TIMEOUT)

    slow = asyncio.create_task(database.read(read_slowly))
    await asyncio.to_thread(reading.wait, TIMEOUT)
    await database.write(meta.put, "kept", "yes")
    for end in ("-wal", "-shm"):
        path.with_name(path.name + end).unlink()
    with pytest.raises(Unavailable, match="removed"):
        await database.write(meta.put, "kept", "no")
    go_on.set()
    await slow
    await database.close()

    async with opened(path) as again:
        assert await again.read(meta.get, "kept") == "yes"


async def test_every_connection_is_opened_with_the_store(path: Path) -> None:
    def wal_descriptors() -> int:
        return sum(link.endswith("-wal") for link in descriptors(path))

    together = threading.Barrier(READERS)
    async with opened(path) as database, aclosing(database.listen("any")) as notifications:
        before = wal_descriptors()
        await anext(notifications)
        await asyncio.gather(*(database.read(lambda tx: together.wait(TIMEOUT)) for _ in range(READERS)))
        await database.write(meta.put, "key", "value")
        await asyncio.wait_for(anext(notifications), TIMEOUT)

        assert wal_descriptors() == before


async def test_a_store_closes_while_its_poller_reads(path: Path) -> None:
    reading, go_on = threading.Event(), threading.Event()

    def read_slowly(cursor: apsw.Cursor, statement: str, bindings: object) -> bool:
        if "data_version" in statement:
            reading.set()
            go_on.wait(TIMEOUT)
        return True

    database = await open_sqlite(path)
    database._poll_connection.exec_trace = read_slowly
    async with asyncio.timeout(TIMEOUT), aclosing(database.listen("any")) as wakeups:
        await anext(wakeups)
        await asyncio.to_thread(reading.wait, TIMEOUT)
        closing = asyncio.create_task(database.close())
        await asyncio.sleep(0)
        go_on.set()
        await closing
    assert database._supervisor.statuses() == []
