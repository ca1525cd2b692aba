"""Calls that a person must be asked about."""

import asyncio
from pathlib import Path

import pytest

from holdfast.model.entry import Entry
from holdfast.model.errors import Conflict, NotFound
from holdfast.model.event import ApprovalAnswered, ApprovalAsked, ToolEnded
from holdfast.model.message import text_of
from holdfast.providers.scripted import Call, Step
from tests.engine.stage import Stage, set_up
from tests.engine.well_formed import assert_well_formed

ASK = Step(call=(Call(name="mail", arguments={"to": "all"}),))


async def asked(stage: Stage, session_id: str) -> ApprovalAsked:
    async for item in stage.engine.watch(session_id):
        if isinstance(item, Entry) and isinstance(item.event, ApprovalAsked):
            return item.event
    raise AssertionError("nobody asked")


@pytest.mark.parametrize("allowed", [True, False])
async def test_the_answer_decides_whether_the_call_is_run(tmp_path: Path, stages: list[Stage], allowed: bool) -> None:
    stages.append(stage := await set_up(tmp_path, ASK, Step(say="So be it."), approval_seconds=None))
    session = await stage.session()
    turn = asyncio.create_task(stage.play(session.id, "Mail all"))
    question = await asked(stage, session.id)

    await stage.engine.approve(session.id, question.turn_id, question.call_id, allowed=allowed, by="bo")

    events = await turn
    assert [event.outcome for event in events if isinstance(event, ToolEnded)] == ["ok" if allowed else "denied"]
    assert stage.mailer.outbox.exists() == allowed
    assert_well_formed(await stage.log(session.id))


async def test_an_answer_through_another_worker_counts(tmp_path: Path, stages: list[Stage]) -> None:
    stages.append(stage := await set_up(tmp_path, ASK, Step(say="So be it."), approval_seconds=None))
    stages.append(other := await set_up(tmp_path, database=stage.database))
    session = await stage.session()
    turn = asyncio.create_task(stage.play(session.id, "Mail all"))
    question = await asked(other, session.id)

    await other.engine.approve(session.id, question.turn_id, question.call_id, allowed=True, by="bo")

    assert [event.outcome for event in await turn if isinstance(event, ToolEnded)] == ["ok"]


async def test_a_question_is_answered_once(tmp_path: Path, stages: list[Stage]) -> None:
    stages.append(stage := await set_up(tmp_path, ASK, Step(say="So be it."), approval_seconds=None))
    session = await stage.session()
    turn = asyncio.create_task(stage.play(session.id, "Mail all"))
    question = await asked(stage, session.id)
    place = (session.id, question.turn_id, question.call_id)

    await stage.engine.approve(*place, allowed=False, by="bo")
    with pytest.raises(Conflict, match="bo"):
        await stage.engine.approve(*place, allowed=True, by="mo")
    with pytest.raises(NotFound):
        await stage.engine.approve(session.id, question.turn_id, "other", allowed=True, by="mo")

    await turn
    answers = [event for event in await stage.log(session.id) if isinstance(event, ApprovalAnswered)]
    assert [(answer.allowed, answer.by) for answer in answers] == [(False, "bo")]


async def test_where_nobody_answers_in_time_the_call_is_denied_and_the_model_is_told_why(
    tmp_path: Path, stages: list[Stage]
) -> None:
    stages.append(stage := await set_up(tmp_path, ASK, Step(say="Then not."), approval_seconds=0.05))
    session = await stage.session()

    events = await stage.play(session.id, "Mail all")

    denied = [event for event in events if isinstance(event, ToolEnded)]
    assert [event.outcome for event in denied] == ["denied"]
    assert "nobody answered in time" in text_of(denied[0].parts)
    assert await stage.engine.questions(session.id) == []


@pytest.mark.parametrize(("policy", "outcome"), [("allow", "ok"), ("deny", "denied")])
async def test_a_policy_can_answer_for_the_person(
    tmp_path: Path, stages: list[Stage], policy: str, outcome: str
) -> None:
    stages.append(stage := await set_up(tmp_path, ASK, Step(say="Done."), approvals=policy))
    session = await stage.session()

    events = await stage.play(session.id, "Mail all")

    assert [event.outcome for event in events if isinstance(event, ToolEnded)] == [outcome]
    assert not any(isinstance(event, ApprovalAsked) for event in events)


async def test_a_question_survives_a_restart_and_is_not_put_twice(tmp_path: Path, stages: list[Stage]) -> None:
    stages.append(stage := await set_up(tmp_path, ASK, Step(say="Done."), approval_seconds=None))
    session = await stage.session()
    turn = asyncio.create_task(stage.play(session.id, "Mail all"))
    question = await asked(stage, session.id)
    await stage.engine.close("restarted")
    turn.cancel()
    stages.append(
        other := await set_up(tmp_path, ASK, Step(say="Done."), approval_seconds=None, database=stage.database)
    )

    assert [found.call_id for found in await other.engine.questions(session.id)] == [question.call_id]
    await other.engine.approve(session.id, question.turn_id, question.call_id, allowed=True, by="bo")
    await other.engine.resume(session.id)
    async for item in other.engine.watch(session.id):
        if isinstance(item, Entry) and item.kind == "turn_ended":
            break

    events = await other.log(session.id)
    assert_well_formed(events)
    assert sum(isinstance(event, ApprovalAsked) for event in events) == 1
    assert other.mailer.outbox.read_text() == "all\n"
