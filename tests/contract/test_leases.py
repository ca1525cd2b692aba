"""Leases and workers: one writer at a time, and nobody holds what the dead held."""

import asyncio

import pytest

from holdfast.model.errors import Busy, Conflict, LeaseLost, NotFound
from holdfast.model.session import Session
from holdfast.store import leases, log, sessions, workers
from holdfast.store.database import Database
from tests.conftest import NewWorker
from tests.contract.conftest import NewSession, Spawn
from tests.contract.logs import user
from tests.fakes.clock import FakeClock


async def test_the_token_grows_at_each_change_of_hands(
    database: Database, session: Session, new_worker: NewWorker
) -> None:
    tokens = []
    for worker in (await new_worker(), await new_worker(), await new_worker()):
        lease = await database.write(leases.take, session.id, worker)
        tokens.append(lease.token)
        assert await database.write(leases.release, lease)

    assert tokens == sorted(set(tokens))


async def test_taking_what_one_holds_returns_the_same_lease(database: Database, session: Session, worker: str) -> None:
    first = await database.write(leases.take, session.id, worker)
    again = await database.write(leases.take, session.id, worker)

    assert again == first
    await database.write(log.append, first, [user("still mine")], at=1)


async def test_the_second_comer_is_told_who_holds_the_session(
    database: Database, session: Session, new_worker: NewWorker
) -> None:
    holder, second = await new_worker("serve"), await new_worker()
    await database.write(leases.take, session.id, holder)

    with pytest.raises(Busy, match=rf"{session.id} is busy, held by {holder} \(serve, pid 4711 on here\)"):
        await database.write(leases.take, session.id, second)
    assert (await database.read(sessions.get, session.id)).lease_worker == holder


async def test_of_many_who_grab_at_once_one_gets_the_session(
    database: Database, another: Database, session: Session, new_worker: NewWorker
) -> None:
    crowd = [await new_worker() for _ in range(10)]
    outcomes = await asyncio.gather(
        *((database, another)[n % 2].write(leases.take, session.id, worker) for n, worker in enumerate(crowd)),
        return_exceptions=True,
    )

    winners = [outcome for outcome in outcomes if isinstance(outcome, leases.Lease)]
    assert len(winners) == 1
    assert all(isinstance(outcome, Busy | leases.Lease) for outcome in outcomes)
    assert (await database.read(sessions.get, session.id)).lease_worker == winners[0].worker_id


async def test_of_two_processes_that_grab_at_once_one_gets_the_session(
    database: Database, session: Session, new_worker: NewWorker, spawn: Spawn
) -> None:
    children = [await spawn("take", session.id, await new_worker()) for _ in range(2)]
    outcomes = await asyncio.gather(*(child.go() for child in children))

    assert sorted(isinstance(outcome, int) for outcome in outcomes) == [False, True]
    refused = next(outcome for outcome in outcomes if not isinstance(outcome, int))
    holder = (await database.read(sessions.get, session.id)).lease_worker
    assert refused["error"] == "session_busy"
    assert holder in refused["message"]


async def test_a_session_that_is_not_there_cannot_be_held(database: Database, worker: str) -> None:
    with pytest.raises(NotFound, match="hf-nobody"):
        await database.write(leases.take, "hf-nobody", worker)


async def test_giving_back_what_one_no_longer_holds_changes_nothing(
    database: Database, session: Session, new_worker: NewWorker
) -> None:
    old = await database.write(leases.take, session.id, await new_worker())
    assert await database.write(leases.release, old)
    new = await database.write(leases.take, session.id, await new_worker())

    assert not await database.write(leases.release, old)
    assert (await database.read(sessions.get, session.id)).lease_worker == new.worker_id


async def test_no_time_limit_takes_a_session_from_the_living(
    database: Database, session: Session, new_worker: NewWorker, clock: FakeClock
) -> None:
    lease = await database.write(leases.take, session.id, await new_worker())
    clock.pass_seconds(30 * 86_400)

    with pytest.raises(Busy):
        await database.write(leases.take, session.id, await new_worker())
    await database.write(log.append, lease, [user("after a month")], at=clock.now())


# workers


async def test_a_worker_is_what_was_registered(database: Database, clock: FakeClock) -> None:
    identity = workers.Identity(host="box", boot="boot-7", pid=99, process_started="1234.5")
    await database.write(workers.register, "worker-1", "serve", identity, version="0.1.0", at=clock.now())
    worker = await database.read(workers.get, "worker-1")

    assert (worker.host, worker.boot, worker.pid, worker.process_started) == ("box", "boot-7", 99, "1234.5")
    assert (worker.kind, worker.version, worker.started_at) == ("serve", "0.1.0", clock.now())
    assert (worker.beat, worker.beat_at, worker.ended_at) == (0, clock.now(), None)
    assert await database.read(workers.get, "worker-2") is None


async def test_each_beat_counts_and_shows_as_the_heartbeat_of_what_is_held(
    database: Database, session: Session, worker: str, clock: FakeClock
) -> None:
    await database.write(leases.take, session.id, worker)
    for count in (1, 2, 3):
        clock.pass_seconds(15)
        assert await database.write(workers.beat, worker, at=clock.now()) == count

    assert (await database.read(sessions.get, session.id)).last_heartbeat_at == clock.now()
    listed = await database.read(sessions.list_page, sessions.EVERYTHING, limit=1)
    assert listed.sessions[0].last_heartbeat_at == clock.now()


async def test_a_stalled_worker_says_so_until_it_is_not(database: Database, worker: str, clock: FakeClock) -> None:
    await database.write(workers.beat, worker, at=clock.now(), stalled_since=clock.now())
    assert (await database.read(workers.get, worker)).stalled_since == clock.now()
    await database.write(workers.beat, worker, at=clock.now())

    assert (await database.read(workers.get, worker)).stalled_since is None


async def test_burying_a_worker_frees_all_it_held_and_nothing_else(
    database: Database, new_session: NewSession, new_worker: NewWorker, clock: FakeClock
) -> None:
    dead, living = await new_worker(), await new_worker()
    lost = [await database.write(leases.take, (await new_session()).id, dead) for _ in range(3)]
    kept = await database.write(leases.take, (await new_session()).id, living)
    free = await new_session()
    freed = await database.write(workers.bury, dead, "the process is gone", at=clock.now())

    assert sorted(freed) == sorted(lease.session_id for lease in lost)
    for lease in lost:
        with pytest.raises(LeaseLost):
            await database.write(log.append, lease, [user("late")], at=1)
        assert not await database.write(leases.release, lease)
        await database.write(leases.take, lease.session_id, living)
    await database.write(log.append, kept, [user("unharmed")], at=1)
    assert (await database.read(sessions.get, free.id)).lease_worker is None


async def test_burying_twice_finds_nothing_and_keeps_the_first_reason(
    database: Database, session: Session, worker: str, clock: FakeClock
) -> None:
    await database.write(leases.take, session.id, worker)
    await database.write(workers.bury, worker, "first", at=clock.now())

    assert await database.write(workers.bury, worker, "second", at=clock.now() + 1) == []
    assert await database.write(workers.bury, "worker-nobody", "third", at=clock.now()) == []
    buried = await database.read(workers.get, worker)
    assert (buried.end_reason, buried.ended_at) == ("first", clock.now())


async def test_a_worker_that_was_buried_is_told_at_its_next_beat(database: Database, worker: str) -> None:
    await database.write(workers.bury, worker, "no sign of life", at=1)

    with pytest.raises(Conflict, match=f"{worker} was declared dead"):
        await database.write(workers.beat, worker, at=2)
    with pytest.raises(Conflict):
        await database.write(workers.beat, "worker-nobody", at=2)


async def test_a_worker_that_was_buried_can_hold_nothing_any_more(
    database: Database, session: Session, worker: str, new_worker: NewWorker
) -> None:
    await database.write(workers.bury, worker, "no sign of life", at=1)

    for stranger in (worker, "worker-nobody"):
        with pytest.raises(Conflict, match=stranger):
            await database.write(leases.take, session.id, stranger)
    assert (await database.read(sessions.get, session.id)).lease_worker is None, "nobody would ever free it"
    await database.write(leases.take, session.id, await new_worker())


async def test_the_living_are_listed_oldest_first_and_the_recent_newest_first(
    database: Database, new_worker: NewWorker, clock: FakeClock
) -> None:
    made = []
    for _ in range(4):
        clock.pass_seconds(1)
        made.append(await new_worker())
    await database.write(workers.bury, made[1], "gone", at=clock.now())

    assert [worker.id for worker in await database.read(workers.alive)] == [made[0], made[2], made[3]]
    assert [worker.id for worker in await database.read(workers.recent, 3)] == [made[3], made[2], made[1]]
