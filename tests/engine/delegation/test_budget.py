"""Sub-agents spend the budget of the session that delegated to them, and ask for more where its user is."""

import json
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from holdfast.engine.spending.meter import SpendingLimits
from holdfast.engine.spending.report import report_session
from holdfast.model.answer import Answer
from holdfast.model.event import BudgetRaised, TurnEnded, Usage
from holdfast.model.price import NANO, Price
from holdfast.model.provider import Delta, ModelReply, ModelRequest
from holdfast.store.repos import approvals
from holdfast.store.repos.approvals import Approval
from holdfast.tasks import running
from tests.contract.store_urls import new_place, open_place
from tests.engine.delegation.family import Family, answer, family

DOLLAR = Price(input=0, output=1_000_000)
LIMITS = SpendingLimits(session=2 * NANO, reply_tokens=1)
SPENT = Usage(tokens_in=1, tokens_out=1, cost=1.0)
TASKS = [{"task": f"do {n}"} for n in range(3)]


async def dear(request: ModelRequest) -> AsyncIterator[Delta | ModelReply]:
    """Each reply costs a dollar."""
    async for item in answer(request):
        is_reply = isinstance(item, ModelReply)
        yield msgspec.structs.replace(item, usage=SPENT, called=request.model) if is_reply else item


async def questions(one: Family, parent: str, *, of_parent: bool, count: int) -> list[Approval]:
    """The open questions of the parent, or of its children, once there are so many."""
    async for _ in one.stage.database.listen(parent):
        found = await one.stage.database.read(approvals.list_unanswered_in_tree, parent)
        found = [question for question in found if (question.session_id == parent) == of_parent]
        if len(found) == count:
            return found
    raise AssertionError("the store was closed")


@pytest.mark.parametrize("kind", ["sqlite", pytest.param("postgres", marks=pytest.mark.process)])
async def test_promise_31_one_answer_raises_the_budget_of_all_sub_agents_once(tmp_path: Path, kind: str) -> None:
    """The parent and its first child spend the budget; both other children ask, and one answer is for both."""
    database = await open_place(new_place(kind, tmp_path, migrated=True))
    options = {"find_price": lambda name: DOLLAR, "approval_seconds": None}
    async with family(tmp_path, database=database, ask=dear, spending=LIMITS, **options) as one:
        parent = await one.parent()
        turn = one.stage.play(parent, json.dumps(TASKS))
        async with running(turn):
            found = await questions(one, parent, of_parent=False, count=2)
            assert all(f"The budget of session {parent} and its sub-agents is used up" in q.question for q in found)
            assert len({q.session_id for q in found}) == 2
            await one.stage.engine.answer(found[0].call_key, Answer(allowed=True), by="ann")

            [last] = await questions(one, parent, of_parent=True, count=1)  # the children have spent the rest
            await one.stage.engine.answer(last.call_key, Answer(allowed=False), by="ann")
            await one.quiet()
        log = await one.stage.log(parent)
        children = [await one.stage.log(record.child_id) for record in await one.children(parent)]
        report = await report_session(database, one.stage.engine.meter, parent, at=1)

    assert [event.amount for event in log if isinstance(event, BudgetRaised)] == [2.0]
    assert isinstance(log[-1], TurnEnded)
    assert (log[-1].outcome, log[-1].code) == ("failed", "budget_exceeded")
    ends = [event.outcome for child in children for event in child if isinstance(event, TurnEnded)]
    assert ends == ["done"] * 3
    assert (report.total.cost, report.sub_agents.cost) == (NANO, 3 * NANO)
    await database.close()
