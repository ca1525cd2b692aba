"""Two real processes want one session; the first is stopped while the second takes it over."""

import asyncio
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from holdfast.model.errors import Unavailable
from holdfast.model.event import SessionOpened, UserSaid
from holdfast.model.ids import SESSION, WORKER, Ids
from holdfast.model.message import Text
from holdfast.store.database import Database
from holdfast.store.repos import leases, log, sessions, workers
from holdfast.store.repos.leases import Lease
from holdfast.store.sqlite.driver import open_sqlite
from holdfast.torture.invariants import user_texts
from holdfast.torture.programs import lease_holder
from holdfast.torture.subprocesses import ChildProcess, start_program
from tests.crash.programs import ROOT, wait_until
from tests.crash.stopping import STOP_MIDWAY
from tests.crash.verification import verify
from tests.crash.writer import DATABASE, IDENTITY, VERSION
from tests.fakes.clock import FakeClock

pytestmark = [pytest.mark.crash, pytest.mark.timeout(180)]

BUSY_SECONDS = 0.5
"""How long the second process waits for a lock that will not be released."""


@pytest.fixture
async def second(tmp_path: Path) -> AsyncIterator[Database]:
    """The store, opened by this process."""
    opened = await open_sqlite(tmp_path / DATABASE, busy_seconds=BUSY_SECONDS)
    yield opened
    await opened.close()


@pytest.fixture
async def session(second: Database, clock: FakeClock, ids: Ids) -> str:
    created, _ = await second.write(sessions.create, ids.make(SESSION), SessionOpened(source="run"), at=clock.now())
    return created.id


@pytest.fixture
async def first(session: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ChildProcess]:
    """Another process, which holds the session."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    url = f"sqlite:///{tmp_path / DATABASE}"
    parameters = {"url": url, "opener": "tests.crash.stopping:open_stopping", "sessions": [session]}
    async with start_program(lease_holder, parameters) as child:
        await child.next_line("worker")
        yield child


def worker_of(holder: ChildProcess) -> str:
    return str(holder.lines[0]["worker"])


def wait_until_stopped(process: ChildProcess) -> None:
    stat = Path(f"/proc/{process.pid}/stat")
    wait_until(lambda: stat.read_text().rpartition(")")[2].split()[0] == "T", f"process {process.pid} is stopped")


def stop(process: ChildProcess) -> None:
    process.signal(signal.SIGSTOP)
    wait_until_stopped(process)


async def take_over(database: Database, dead: str, session_id: str, clock: FakeClock, ids: Ids) -> Lease:
    worker = ids.make(WORKER)
    await database.write(workers.register, worker, "test", IDENTITY, version=VERSION, at=clock.now())
    assert await database.write(workers.mark_dead, dead, "silent", at=clock.now()) == [session_id]
    return await database.write(leases.take, session_id, worker)


async def texts(database: Database, session_id: str) -> list[str]:
    return user_texts(await database.read(lambda tx: log.read_complete(tx, sessions.get(tx, session_id))))


def message(text: str) -> UserSaid:
    return UserSaid(turn_id="second", parts=(Text(text),))


async def test_a_process_that_was_stopped_and_declared_dead_can_write_nothing(
    first: ChildProcess, second: Database, session: str, clock: FakeClock, ids: Ids
) -> None:
    first.send("append")
    await first.next_line("done")
    stop(first)
    lease = await take_over(second, worker_of(first), session, clock, ids)
    await second.write(log.append, lease, [message("by the second")], at=clock.now())
    for command in ("late append", "draft", "release", "take", "beat"):
        first.send(command)
    first.signal(signal.SIGCONT)
    await first.wait_until(lambda lines: {"done": "beat"} in lines)
    await second.write(log.append, lease, [message("by the second again")], at=clock.now())

    assert {line["command"]: line["outcome"] for line in first.lines if "command" in line} == {
        "append": True,
        "late append": "LeaseLost",
        "draft": "LeaseLost",
        "release": False,
        "take": "Busy",
        "beat": "DeclaredDead",
    }
    assert await texts(second, session) == ["append", "by the second", "by the second again"]


async def test_a_process_that_was_declared_dead_cannot_take_a_free_session(
    first: ChildProcess, second: Database, session: str, clock: FakeClock, ids: Ids
) -> None:
    stop(first)
    lease = await take_over(second, worker_of(first), session, clock, ids)
    await second.write(leases.release, lease)
    first.send("take")
    first.send("append")
    first.signal(signal.SIGCONT)

    assert (await first.next_line("command"))["outcome"] == "DeclaredDead"
    assert (await first.next_line("command"))["outcome"] == "LeaseLost"
    assert await texts(second, session) == []


async def test_a_process_stopped_in_a_write_blocks_writers_with_an_error_but_not_readers(
    first: ChildProcess, second: Database, session: str, clock: FakeClock
) -> None:
    first.send(STOP_MIDWAY)
    wait_until_stopped(first)

    assert await texts(second, session) == []
    with pytest.raises(Unavailable):
        await second.write(workers.mark_dead, worker_of(first), "silent", at=clock.now())

    first.signal(signal.SIGCONT)
    assert (await first.next_line("command"))["outcome"] is True
    assert await texts(second, session) == [STOP_MIDWAY]


async def test_a_process_killed_in_a_write_leaves_nothing_of_it_and_the_next_continues(
    first: ChildProcess, second: Database, session: str, clock: FakeClock, ids: Ids, tmp_path: Path
) -> None:
    first.send(STOP_MIDWAY)
    wait_until_stopped(first)
    await first.kill()
    lease = await take_over(second, worker_of(first), session, clock, ids)
    await second.write(log.append, lease, [message("by the second")], at=clock.now())

    assert await texts(second, session) == ["by the second"]
    await second.close()
    await asyncio.to_thread(verify, tmp_path / DATABASE, [])
