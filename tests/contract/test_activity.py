"""Which turns are active in which worker, also after its death."""

from holdfast.model.session import Session
from holdfast.model.times import DAY
from holdfast.store.database import Database
from holdfast.store.repos import activity, leases, session_pruning, sessions, workers
from holdfast.store.repos.activity import TurnActivity
from holdfast.store.repos.leases import Lease
from tests.conftest import NewWorker
from tests.contract.conftest import NewSession


async def held(database: Database, session_id: str, worker: str) -> Lease:
    return await database.write(leases.take, session_id, worker)


async def test_a_turn_is_active_until_it_is_recorded_as_done(database: Database, session: Session, worker: str) -> None:
    lease = await held(database, session.id, worker)

    await database.write(activity.begin, lease, "turn-1", isolated=False)
    await database.write(activity.begin, lease, "turn-2", isolated=False)
    assert await database.read(activity.list_by_worker, worker) == [TurnActivity(session.id, "turn-2")]
    await database.write(activity.end, lease)

    assert await database.read(activity.list_by_worker, worker) == []


async def test_the_rows_of_a_dead_worker_stay_for_a_day_as_evidence(
    database: Database, session: Session, new_worker: NewWorker
) -> None:
    first, second, third = await new_worker(), await new_worker(), await new_worker()
    await database.write(activity.begin, await held(database, session.id, first), "turn-1", isolated=False)
    await database.write(workers.mark_dead, first, "killed", at=1)

    await database.write(workers.mark_dead, second, "killed", at=DAY)
    assert await database.read(activity.list_by_worker, first) == [TurnActivity(session.id, "turn-1")]
    await database.write(workers.mark_dead, third, "killed", at=DAY + 2)

    assert await database.read(activity.list_by_worker, first) == []


async def test_one_isolated_replay_is_active_at_a_time_and_dead_workers_block_nothing(
    database: Database, new_session: NewSession, new_worker: NewWorker
) -> None:
    first, second = await new_worker(), await new_worker()
    one = await held(database, (await new_session()).id, first)
    other = await held(database, (await new_session()).id, second)

    assert await database.write(activity.begin_isolated, one, "turn-1")
    assert await database.write(activity.begin_isolated, one, "turn-1"), "its own does not count"
    assert not await database.write(activity.begin_isolated, other, "turn-2")
    await database.write(workers.mark_dead, first, "killed", at=1)

    assert await database.write(activity.begin_isolated, other, "turn-2")


async def test_activity_rows_are_deleted_when_their_session_is_pruned(
    database: Database, session: Session, worker: str
) -> None:
    lease = await held(database, session.id, worker)
    await database.write(activity.begin, lease, "turn-1", isolated=False)
    await database.write(leases.release, lease)
    await database.write(sessions.trash, session.id, at=1)

    assert await database.write(session_pruning.prune, session.id, before=2)

    assert await database.read(activity.list_by_worker, worker) == []
