"""A real disk fills up while the store writes to it, and later has free space again."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from holdfast.model.errors import DiskFull, NotSaved
from holdfast.model.event import SessionOpened, UserSaid
from holdfast.model.ids import SESSION, WORKER, Ids
from holdfast.model.message import Text
from holdfast.model.session import Session
from holdfast.store.database import Database
from holdfast.store.repos import leases, log, sessions, workers
from holdfast.store.repos.leases import Lease
from holdfast.store.sqlite.driver import SqliteDatabase, open_sqlite
from tests.crash import disk
from tests.crash.disk import MEGABYTE, Disk
from tests.crash.output import Head, head_of
from tests.crash.verification import verify
from tests.crash.writer import DATABASE, IDENTITY, VERSION, write_together
from tests.fakes.clock import FakeClock

pytestmark = [pytest.mark.crash, pytest.mark.timeout(180)]

MEGABYTES = 32
BALLAST = 18 * MEGABYTE
"""More than the WAL can hold when the disk is full: all of it moves into the database file later."""
MAX_MESSAGES = 5_000
"""More messages than the disk can hold."""


@pytest.fixture
def drive() -> Iterator[Disk]:
    with disk.mounted(MEGABYTES) as mounted:
        (mounted.point / "ballast").write_bytes(b"x" * BALLAST)
        yield mounted


@pytest.fixture
async def store(drive: Disk) -> AsyncIterator[SqliteDatabase]:
    opened = await open_sqlite(drive.home / DATABASE)
    yield opened
    await opened.close()


@pytest.fixture
async def lease(store: SqliteDatabase, clock: FakeClock, ids: Ids) -> Lease:
    worker, session_id = ids.make(WORKER), ids.make(SESSION)
    await store.write(workers.register, worker, "test", IDENTITY, version=VERSION, at=clock.now())
    await store.write(sessions.create, session_id, SessionOpened(source="run"), at=clock.now())
    return await store.write(leases.take, session_id, worker)


def said(size: int) -> UserSaid:
    return UserSaid(turn_id="turn", parts=(Text("x" * size),))


async def append(store: Database, lease: Lease, size: int, clock: FakeClock) -> Head:
    return head_of(await store.write(log.append, lease, [said(size)], at=clock.now()))


async def fill(store: Database, lease: Lease, size: int, clock: FakeClock) -> list[Head]:
    """Append until the disk is full; return what was acknowledged before."""
    saved: list[Head] = []
    with pytest.raises(DiskFull):
        for _ in range(MAX_MESSAGES):
            saved.append(await append(store, lease, size, clock))
    return saved


async def length(store: Database, session_id: str) -> int:
    return len(await store.read(lambda tx: log.read_complete(tx, sessions.get(tx, session_id))))


async def test_a_full_disk_is_reported_and_writing_continues_when_space_is_freed(
    drive: Disk, store: SqliteDatabase, lease: Lease, clock: FakeClock
) -> None:
    saved = await fill(store, lease, 100_000, clock)
    saved += await fill(store, lease, 1_000, clock)
    with pytest.raises(DiskFull):
        await append(store, lease, 100_000, clock)
    (drive.point / "ballast").unlink()
    saved.append(await append(store, lease, 100_000, clock))
    await store.close()

    logs, _ = await asyncio.to_thread(verify, drive.home / DATABASE, saved)
    assert len(logs[lease.session_id]) == 1 + len(saved), "and no refused message"


async def test_a_store_on_a_full_disk_can_be_read_and_opened(
    drive: Disk, store: SqliteDatabase, lease: Lease, clock: FakeClock
) -> None:
    saved = await fill(store, lease, 100_000, clock)
    saved += await fill(store, lease, 10, clock)
    fill_completely(drive)

    assert await length(store, lease.session_id) == 1 + len(saved)
    await store.close()
    again = await open_sqlite(drive.home / DATABASE)
    assert await length(again, lease.session_id) == 1 + len(saved)
    await again.close()


async def test_a_message_too_large_for_the_disk_does_not_fail_other_writes_of_its_commit(
    drive: Disk, store: SqliteDatabase, clock: FakeClock, ids: Ids
) -> None:
    worker = ids.make(WORKER)
    await store.write(workers.register, worker, "test", IDENTITY, version=VERSION, at=clock.now())
    held = []
    for _ in range(3):
        created, _ = await store.write(sessions.create, ids.make(SESSION), SessionOpened(source="run"), at=clock.now())
        held.append(await store.write(leases.take, created.id, worker))
    sizes = (1_000, 2 * MEGABYTES * MEGABYTE, 1_000)

    results = await write_together(
        store,
        [
            lambda tx, lease=lease, size=size: log.append(tx, lease, [said(size)], at=clock.now())
            for lease, size in zip(held, sizes, strict=True)
        ],
    )

    assert [type(result) for result in results] == [Session, DiskFull, Session]
    assert [await length(store, lease.session_id) for lease in held] == [2, 1, 2]


async def test_a_store_that_cannot_be_created_on_a_full_disk_is_an_error_and_can_be_created_later(
    drive: Disk, tmp_path: Path
) -> None:
    fill_completely(drive)

    with pytest.raises(NotSaved):
        await open_sqlite(drive.home / DATABASE)

    (drive.point / "ballast").unlink()
    await asyncio.to_thread(verify, drive.home / DATABASE, [])


def fill_completely(drive: Disk) -> None:
    """Leave no free block."""
    with (drive.point / "filler").open("wb", buffering=0) as file:
        for size in (MEGABYTE, 4096, 512, 1):
            try:
                while True:
                    file.write(b"x" * size)
            except OSError:
                continue
