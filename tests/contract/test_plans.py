"""The plan of a session: the newest one that no rewind took back, in forks too."""

from holdfast.model.event import PlanChanged, Rewound
from holdfast.model.plan import PlanItem
from holdfast.model.session import Session
from holdfast.store.database import Database
from holdfast.store.repos import leases, log, plans
from tests.fakes.clock import FakeClock
from tests.fakes.forks import fork_session


def plan(*steps: str) -> PlanChanged:
    return PlanChanged(turn_id="turn-1", call_id="call-1", items=tuple(PlanItem(content=step) for step in steps))


async def current(database: Database, session_id: str) -> list[str]:
    return [item.content for item in await database.read(plans.current, session_id)]


async def test_the_newest_plan_is_current_and_an_empty_one_removes_it(
    database: Database, session: Session, worker: str, clock: FakeClock
) -> None:
    lease = await database.write(leases.take, session.id, worker)

    assert await current(database, session.id) == []
    await database.write(log.append, lease, [plan("a"), plan("b", "c")], at=clock.now())
    assert await current(database, session.id) == ["b", "c"]
    await database.write(log.append, lease, [plan()], at=clock.now())
    assert await current(database, session.id) == []


async def test_a_rewind_restores_the_plan_of_that_point(
    database: Database, session: Session, worker: str, clock: FakeClock
) -> None:
    lease = await database.write(leases.take, session.id, worker)
    first = (await database.write(log.append, lease, [plan("first")], at=clock.now())).seq
    for number in range(50):
        await database.write(log.append, lease, [plan(f"later {number}")], at=clock.now())

    await database.write(log.append, lease, [Rewound(to_seq=first)], at=clock.now())
    assert await current(database, session.id) == ["first"]
    await database.write(log.append, lease, [plan("after the rewind")], at=clock.now())
    assert await current(database, session.id) == ["after the rewind"]
    await database.write(log.append, lease, [Rewound(to_seq=first - 1)], at=clock.now())
    assert await current(database, session.id) == []


async def test_a_fork_has_the_plan_of_its_branch_point(
    database: Database, session: Session, worker: str, clock: FakeClock
) -> None:
    lease = await database.write(leases.take, session.id, worker)
    first = (await database.write(log.append, lease, [plan("first")], at=clock.now())).seq
    await database.write(log.append, lease, [plan("second")], at=clock.now())
    await database.write(leases.release, lease)

    await database.write(fork_session, session.id, "hf-fork", at=clock.now(), at_seq=first)

    assert await current(database, "hf-fork") == ["first"]
    assert await current(database, session.id) == ["second"]
