"""Leases and workers: one writer at a time, and leases of dead workers are released."""

import asyncio

import pytest

from holdfast.model.errors import Busy, Conflict, LeaseLost, NotFound
from holdfast.model.event import UserSaid
from holdfast.model.message import Text
from holdfast.model.session import Session
from holdfast.store.database import Database
from holdfast.store.repos import input_queue, leases, log, session_list, sessions, workers
from holdfast.store.repos.input_queue import Input
from tests.conftest import NewWorker
from tests.contract.conftest import NewSession, Spawn
from tests.contract.logs import user
from tests.fakes.clock import FakeClock


async def test_the_token_increases_with_each_new_holder(
    database: Database, session: Session, new_worker: NewWorker
) -> None:
    tokens = []
    for worker in (await new_worker(), await new_worker(), await new_worker()):
        lease = await database.write(leases.take, session.id, worker)
        tokens.append(lease.token)
        assert await database.write(leases.release, lease)

    assert tokens == sorted(set(tokens))


async def test_taking_a_held_session_again_returns_the_same_lease(
    database: Database, session: Session, worker: str
) -> None:
    first = await database.write(leases.take, session.id, worker)
    again = await database.write(leases.take, session.id, worker)

    assert again == first
    await database.write(log.append, first, [user("still mine")], at=1)


async def test_the_second_worker_gets_the_name_of_the_holder(
    database: Database, session: Session, new_worker: NewWorker
) -> None:
    holder, second = await new_worker("serve"), await new_worker()
    await database.write(leases.take, session.id, holder)

    with pytest.raises(Busy, match=rf"{session.id} is busy, held by {holder} \(serve, pid 4711 on here\)"):
        await database.write(leases.take, session.id, second)
    assert (await database.read(sessions.get, session.id)).lease_worker == holder


async def test_of_many_concurrent_workers_one_gets_the_session(
    database: Database, another: Database, session: Session, new_worker: NewWorker
) -> None:
    racers = [await new_worker() for _ in range(10)]
    outcomes = await asyncio.gather(
        *((database, another)[n % 2].write(leases.take, session.id, worker) for n, worker in enumerate(racers)),
        return_exceptions=True,
    )

    winners = [outcome for outcome in outcomes if isinstance(outcome, leases.Lease)]
    assert len(winners) == 1
    assert all(isinstance(outcome, Busy | leases.Lease) for outcome in outcomes)
    assert (await database.read(sessions.get, session.id)).lease_worker == winners[0].worker_id


@pytest.mark.process
async def test_of_two_concurrent_processes_one_gets_the_session(
    database: Database, session: Session, new_worker: NewWorker, spawn: Spawn
) -> None:
    children = [await spawn("take", session.id, await new_worker()) for _ in range(2)]
    outcomes = await asyncio.gather(*(child.go() for child in children))

    assert sorted(isinstance(outcome, int) for outcome in outcomes) == [False, True]
    refused = next(outcome for outcome in outcomes if not isinstance(outcome, int))
    holder = (await database.read(sessions.get, session.id)).lease_worker
    assert refused["error"] == "session_busy"
    assert holder in refused["message"]


async def test_an_unknown_session_cannot_be_held(database: Database, worker: str) -> None:
    with pytest.raises(NotFound, match="hf-nobody"):
        await database.write(leases.take, "hf-nobody", worker)


async def test_releasing_a_lost_lease_changes_nothing(
    database: Database, session: Session, new_worker: NewWorker
) -> None:
    old = await database.write(leases.take, session.id, await new_worker())
    assert await database.write(leases.release, old)
    new = await database.write(leases.take, session.id, await new_worker())

    assert not await database.write(leases.release, old)
    assert (await database.read(sessions.get, session.id)).lease_worker == new.worker_id


async def test_a_lease_of_a_live_worker_never_expires(
    database: Database, session: Session, new_worker: NewWorker, clock: FakeClock
) -> None:
    lease = await database.write(leases.take, session.id, await new_worker())
    clock.pass_seconds(30 * 86_400)

    with pytest.raises(Busy):
        await database.write(leases.take, session.id, await new_worker())
    await database.write(log.append, lease, [user("after a month")], at=clock.now())


# workers


async def test_a_worker_is_stored_as_registered(database: Database, clock: FakeClock) -> None:
    identity = workers.Identity(host="box", boot="boot-7", pid=99, process_started="1234.5")
    await database.write(workers.register, "worker-1", "serve", identity, version="0.1.0", at=clock.now())
    worker = await database.read(workers.get, "worker-1")

    assert (worker.host, worker.boot, worker.pid, worker.process_started) == ("box", "boot-7", 99, "1234.5")
    assert (worker.kind, worker.version, worker.started_at) == ("serve", "0.1.0", clock.now())
    assert (worker.beat, worker.beat_at, worker.ended_at) == (0, clock.now(), None)
    assert await database.read(workers.get, "worker-2") is None


async def test_each_heartbeat_counts_and_is_shown_with_the_held_sessions(
    database: Database, session: Session, worker: str, clock: FakeClock
) -> None:
    await database.write(leases.take, session.id, worker)
    for count in (1, 2, 3):
        clock.pass_seconds(15)
        assert await database.write(workers.record_heartbeat, worker, at=clock.now()) == count

    assert (await database.read(sessions.get, session.id)).last_heartbeat_at == clock.now()
    listed = await database.read(session_list.list_page, session_list.EVERYTHING, limit=1)
    assert listed.sessions[0].last_heartbeat_at == clock.now()


async def test_a_stalled_worker_is_reported_until_it_recovers(
    database: Database, worker: str, clock: FakeClock
) -> None:
    await database.write(workers.record_heartbeat, worker, at=clock.now(), stalled_since=clock.now())
    assert (await database.read(workers.get, worker)).stalled_since == clock.now()
    await database.write(workers.record_heartbeat, worker, at=clock.now())

    assert (await database.read(workers.get, worker)).stalled_since is None


async def test_declaring_a_worker_dead_releases_its_leases_and_nothing_else(
    database: Database, new_session: NewSession, new_worker: NewWorker, clock: FakeClock
) -> None:
    dead, living = await new_worker(), await new_worker()
    lost = [await database.write(leases.take, (await new_session()).id, dead) for _ in range(3)]
    kept = await database.write(leases.take, (await new_session()).id, living)
    free = await new_session()
    freed = await database.write(workers.mark_dead, dead, "the process is gone", at=clock.now())

    assert sorted(freed) == sorted(lease.session_id for lease in lost)
    for lease in lost:
        with pytest.raises(LeaseLost):
            await database.write(log.append, lease, [user("late")], at=1)
        assert not await database.write(leases.release, lease)
        await database.write(leases.take, lease.session_id, living)
    await database.write(log.append, kept, [user("unharmed")], at=1)
    assert (await database.read(sessions.get, free.id)).lease_worker is None


async def test_declaring_a_worker_dead_twice_keeps_the_first_reason(
    database: Database, session: Session, worker: str, clock: FakeClock
) -> None:
    await database.write(leases.take, session.id, worker)
    await database.write(workers.mark_dead, worker, "first", at=clock.now())

    assert await database.write(workers.mark_dead, worker, "second", at=clock.now() + 1) == []
    assert await database.write(workers.mark_dead, "worker-nobody", "third", at=clock.now()) == []
    dead = await database.read(workers.get, worker)
    assert (dead.end_reason, dead.ended_at) == ("first", clock.now())


async def test_a_worker_that_was_declared_dead_gets_an_error_at_its_next_heartbeat(
    database: Database, worker: str
) -> None:
    await database.write(workers.mark_dead, worker, "no sign of life", at=1)

    with pytest.raises(Conflict, match=f"{worker} was declared dead"):
        await database.write(workers.record_heartbeat, worker, at=2)
    with pytest.raises(Conflict):
        await database.write(workers.record_heartbeat, "worker-nobody", at=2)


async def test_a_worker_that_was_declared_dead_can_hold_nothing(
    database: Database, session: Session, worker: str, new_worker: NewWorker
) -> None:
    await database.write(workers.mark_dead, worker, "no sign of life", at=1)

    for unknown in (worker, "worker-nobody"):
        with pytest.raises(Conflict, match=unknown):
            await database.write(leases.take, session.id, unknown)
    assert (await database.read(sessions.get, session.id)).lease_worker is None, "no worker would ever release it"
    await database.write(leases.take, session.id, await new_worker())


async def test_taking_a_session_returns_it_and_whether_input_waits(
    database: Database, session: Session, worker: str, clock: FakeClock
) -> None:
    first = await database.write(sessions.take, session.id, worker)
    await database.write(leases.release, first.lease)
    await database.write(input_queue.request_stop, session.id, "turn-1", at=clock.now())
    stopped = await database.write(sessions.take, session.id, worker)
    await database.write(leases.release, stopped.lease)
    said = UserSaid(turn_id="turn-2", parts=(Text("later"),))
    await database.write(input_queue.put, session.id, Input("turn-2", "queue", said), at=clock.now())
    second = await database.write(sessions.take, session.id, worker)
    again = await database.write(sessions.take, session.id, worker)

    assert (first.session.id, first.session.seq, first.session.hash) == (session.id, session.seq, session.hash)
    assert first.session.summary == session.summary
    assert first.session.lease_worker == worker
    assert [taken.has_input for taken in (first, stopped, second)] == [False, False, True]
    assert (again.lease, again.session) == (second.lease, None)
    assert second.lease.token == first.lease.token + 2


async def test_live_workers_are_listed_oldest_first_and_recent_ones_newest_first(
    database: Database, new_worker: NewWorker, clock: FakeClock
) -> None:
    made = []
    for _ in range(4):
        clock.pass_seconds(1)
        made.append(await new_worker())
    await database.write(workers.mark_dead, made[1], "gone", at=clock.now())

    assert [worker.id for worker in await database.read(workers.list_alive)] == [made[0], made[2], made[3]]
    assert [worker.id for worker in await database.read(workers.list_recent, 3)] == [made[3], made[2], made[1]]
