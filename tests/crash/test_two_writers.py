"""Two real processes want one session, and the first sleeps while the second is given it."""

import asyncio
import signal
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from holdfast.model.errors import Unavailable
from holdfast.model.event import UserSaid
from holdfast.model.ids import SESSION, WORKER, Ids
from holdfast.model.message import Text, text_of
from holdfast.store import leases, log, sessions, workers
from holdfast.store.database import Database
from holdfast.store.leases import Lease
from holdfast.store.sqlite import open_sqlite
from tests.crash.check import verify
from tests.crash.programs import Process, program, wait_until
from tests.crash.writer import DATABASE, IDENTITY, VERSION
from tests.fakes.clock import FakeClock

pytestmark = [pytest.mark.crash, pytest.mark.timeout(180)]

IMPATIENT = 0.5
"""Seconds to wait for a lock that will not come free."""


@pytest.fixture
def session(ids: Ids) -> str:
    return ids.make(SESSION)


@pytest.fixture
def first(tmp_path: Path, session: str) -> Iterator[Process]:
    """A process that holds the session."""
    with program("holder", tmp_path, session) as holder:
        holder.wait_for_line(holds=session)
        yield holder


@pytest.fixture
async def second(first: Process, tmp_path: Path) -> AsyncIterator[Database]:
    """This process, with the same store."""
    opened = await open_sqlite(tmp_path / DATABASE, busy_seconds=IMPATIENT)
    yield opened
    await opened.close()


def worker_of(holder: Process) -> str:
    return str(holder.lines()[0]["worker"])


def is_stopped(process: Process) -> bool:
    return Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


def put_to_sleep(process: Process) -> None:
    process.signal(signal.SIGSTOP)
    wait_until(lambda: is_stopped(process), "a process that was sent SIGSTOP stops")


async def take_over(database: Database, dead: str, session_id: str, clock: FakeClock, ids: Ids) -> Lease:
    worker = ids.make(WORKER)
    await database.write(workers.register, worker, "test", IDENTITY, version=VERSION, at=clock.now())
    assert await database.write(workers.bury, dead, "silent", at=clock.now()) == [session_id]
    return await database.write(leases.take, session_id, worker)


async def words(database: Database, session_id: str) -> list[str]:
    entries = await database.read(lambda tx: log.read_whole(tx, sessions.get(tx, session_id)))
    return [text_of(entry.event.parts) for entry in entries if isinstance(entry.event, UserSaid)]


def said(text: str) -> UserSaid:
    return UserSaid(turn_id="second", parts=(Text(text),))


async def test_a_process_that_slept_while_it_was_buried_can_write_nothing(
    first: Process, second: Database, session: str, clock: FakeClock, ids: Ids
) -> None:
    first.tell("append")
    first.wait_for_line(order="append")
    put_to_sleep(first)
    lease = await take_over(second, worker_of(first), session, clock, ids)
    await second.write(log.append, lease, [said("by the second")], at=clock.now())
    for order in ("append", "draft", "release", "take", "beat"):
        first.tell(order)
    first.signal(signal.SIGCONT)
    first.wait_for_line(order="beat")
    await second.write(log.append, lease, [said("by the second again")], at=clock.now())

    outcomes = {line["order"]: line.get("error", line.get("result")) for line in first.lines()[2:]}
    assert outcomes == {
        "append": "LeaseLost",
        "draft": "LeaseLost",
        "release": False,
        "take": "Busy",
        "beat": "DeclaredDead",
    }
    assert await words(second, session) == ["append", "by the second", "by the second again"]


async def test_a_process_that_was_buried_can_take_nothing_even_when_nobody_holds_it(
    first: Process, second: Database, session: str, clock: FakeClock, ids: Ids
) -> None:
    put_to_sleep(first)
    lease = await take_over(second, worker_of(first), session, clock, ids)
    await second.write(leases.release, lease)
    first.tell("take")
    first.tell("append")
    first.signal(signal.SIGCONT)

    assert first.wait_for_line(order="take")["error"] == "DeclaredDead"
    assert first.wait_for_line(order="append")["error"] == "LeaseLost"
    assert await words(second, session) == []


async def test_a_process_that_sleeps_in_mid_write_holds_others_up_but_not_their_reading_and_they_are_told(
    first: Process, second: Database, session: str, clock: FakeClock, ids: Ids
) -> None:
    first.tell("append and stop midway")
    wait_until(lambda: is_stopped(first), "the holder stops in the middle of its write")

    assert await words(second, session) == []
    with pytest.raises(Unavailable):
        await second.write(workers.bury, worker_of(first), "silent", at=clock.now())

    first.signal(signal.SIGCONT)
    assert "result" in first.wait_for_line(order="append and stop midway")
    assert await words(second, session) == ["append and stop midway"]


async def test_a_process_killed_in_mid_write_leaves_nothing_of_it_and_the_next_goes_on(
    first: Process, second: Database, session: str, clock: FakeClock, ids: Ids, tmp_path: Path
) -> None:
    first.tell("append and stop midway")
    wait_until(lambda: is_stopped(first), "the holder stops in the middle of its write")
    first.kill()
    lease = await take_over(second, worker_of(first), session, clock, ids)
    await second.write(log.append, lease, [said("by the second")], at=clock.now())

    assert await words(second, session) == ["by the second"]
    await second.close()
    await asyncio.to_thread(verify, tmp_path / DATABASE, [])
