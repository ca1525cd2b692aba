"""Links between a tool call and the child session that does its task."""

import pytest

from holdfast.engine.admission import input_queue as queued
from holdfast.engine.delegation.create import DelegationLimits, create_child, plan_child
from holdfast.model.delegation import DelegationRequest
from holdfast.model.event import ChildEnded, Delegation, SessionOpened, UserSaid
from holdfast.model.message import Text
from holdfast.model.session import Session
from holdfast.store.database import Database
from holdfast.store.repos import delegations, input_queue, leases, log, ownership, sessions
from tests.conftest import NewWorker

LIMITS = DelegationLimits(max_depth=2, max_children=10, seconds=60)


@pytest.mark.parametrize("delivery", ["call", "wake"])
async def test_promise_30_a_withdrawn_task_ends_its_child_and_reaches_the_parent(
    database: Database, session: Session, delivery: str
) -> None:
    link = Delegation(parent_id=session.id, turn_id="turn-1", call_id="call-1", seconds=60)
    opened = SessionOpened(source="api", model="scripted:echo")
    child = plan_child(DelegationRequest(task="Look"), opened, link, delivery=delivery, sender="", at=1)
    await database.write(create_child, child, LIMITS)

    assert await database.write(queued.withdraw, child.id, child.task_turn, at=2)
    assert not await database.write(queued.withdraw, child.id, child.task_turn, at=3)

    record = await database.read(delegations.get, child.id)
    assert record is not None
    assert (record.outcome, record.ended_at) == ("cancelled", 2)
    assert (await database.read(sessions.get, child.id)).summary.end_reason == "delegate_complete"
    waiting = await database.read(input_queue.list_waiting, session.id)
    told = [event for item in waiting for event in item.before if isinstance(event, ChildEnded)]
    assert [event.child_id for event in told] == ([] if delivery == "call" else [child.id])


@pytest.mark.parametrize(
    ("leased", "owned", "served_by"),
    [
        ("", "", {"theirs", "ours"}),
        ("", "theirs", {"theirs"}),
        ("theirs", "", {"theirs"}),
        ("theirs", "ours", {"theirs"}),
    ],
)
async def test_promise_30_a_child_is_served_whether_or_not_the_turn_of_its_parent_has_ended(
    database: Database, session: Session, new_worker: NewWorker, leased: str, owned: str, served_by: set[str]
) -> None:
    names = {"theirs": await new_worker(), "ours": await new_worker()}
    link = Delegation(parent_id=session.id, turn_id="turn-1", call_id="call-1", seconds=60)
    opened = SessionOpened(source="api", model="scripted:echo")
    child = plan_child(DelegationRequest(task="Look"), opened, link, delivery="wake", sender="", at=1)
    await database.write(create_child, child, LIMITS)
    if leased:
        await database.write(leases.take, session.id, names[leased])
    if owned:
        await database.write(ownership.attach, session.id, names[owned])

    assert served_by == {
        name
        for name, worker_id in names.items()
        if child.id in await database.read(delegations.list_unclaimed, worker_id, takes_left=True)
    }
    assert not await database.read(delegations.list_unclaimed, "a third", takes_left=False)


@pytest.mark.parametrize("over", ["ended", "trashed", "withdrawn"])
async def test_promise_30_a_queued_completion_stays_in_the_log_of_a_session_that_does_not_act_on_it(
    database: Database, session: Session, over: str
) -> None:
    link = Delegation(parent_id=session.id, turn_id="turn-1", call_id="call-1", seconds=60)
    opened = SessionOpened(source="api", model="scripted:echo")
    child = plan_child(DelegationRequest(task="Look"), opened, link, delivery="wake", sender="", at=1)
    await database.write(create_child, child, LIMITS)
    await database.write(queued.withdraw, child.id, child.task_turn, at=2)
    [completion] = await database.read(input_queue.list_waiting, session.id)
    said = UserSaid(turn_id="turn-2", parts=(Text("And then?"),))
    await database.write(lambda tx: input_queue.put(tx, session.id, input_queue.Input("turn-2", "queue", said), at=2))

    if over == "ended":
        await database.write(sessions.end, session.id, "user", at=3)
    elif over == "trashed":
        await database.write(sessions.trash, session.id, at=3)
    else:
        assert await database.write(queued.withdraw, session.id, completion.turn_id, at=3)

    told = [e.event.child_id for e in await database.read(log.read, session.id) if isinstance(e.event, ChildEnded)]
    assert told == [child.id]
    assert [item.turn_id for item in await database.read(input_queue.list_waiting, session.id)] == ["turn-2"]
    assert await database.read(log.read_verified, session.id)
