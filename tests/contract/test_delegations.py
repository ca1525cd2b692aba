"""Links between a tool call and the child session that does its task."""

import pytest

from holdfast.engine.admission import input_queue as queued
from holdfast.engine.delegation.link import DelegationLimits, create_child, plan_child
from holdfast.model.delegation import DelegationRequest
from holdfast.model.event import ChildEnded, Delegation, SessionOpened
from holdfast.model.session import Session
from holdfast.store.database import Database
from holdfast.store.repos import delegations, input_queue, sessions

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
