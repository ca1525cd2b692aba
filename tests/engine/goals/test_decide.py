"""What follows from a check, as a table."""

import msgspec
import pytest

from holdfast.engine.goals.check import parse, prompt
from holdfast.engine.goals.decide import GoalStep, GoalVerdict, decide
from holdfast.model.errors import BadReply
from holdfast.model.event import GoalEnded, GoalPaused
from holdfast.model.goal import Goal
from holdfast.model.message import Message, Text, ToolResult
from holdfast.model.plan import PlanItem

GOAL = Goal(
    id="goal-1",
    text="reach it",
    state="active",
    by="local",
    set_at=0,
    deadline_at=1_000,
    max_turns=5,
    max_cost=None,
    cost_before=100,
    turns=3,
    due=True,
    turn_id="turn-1",
)


def step(decision: str, goal: Goal = GOAL, *, cost: int = 100, at: int = 10, **fields: object) -> GoalStep:
    return decide(goal, GoalVerdict(decision, "because", **fields), cost=cost, attempts=3, at=at)  # type: ignore[arg-type]


def changed(**fields: object) -> Goal:
    return msgspec.structs.replace(GOAL, **fields)


@pytest.mark.parametrize(
    ("found", "continues", "then"),
    [
        (step("continue"), True, None),
        (step("done"), False, "done"),
        (step("stuck"), False, "the check says it is stuck: because"),
        (step("failed"), False, None),
        (step("failed", changed(failed_checks=1)), False, None),
        (step("failed", changed(failed_checks=2)), False, "the check failed 3 times in a row: because"),
        (step("failed", final=True), False, "it could not be checked: because"),
        (step("continue", changed(turns=5)), False, "it has taken 5 turns, which is the limit"),
        (step("done", changed(turns=5)), False, "done"),
        (step("continue", at=1_000), False, "expired"),
        (
            step("continue", changed(max_cost=10**9), cost=100 + 10**9),
            False,
            "its budget is used up: $1.00 of $1.00 is spent",
        ),
        (step("continue", changed(max_cost=10**9), cost=99 + 10**9), True, None),
    ],
)
def test_what_follows_from_a_check(found: GoalStep, continues: bool, then: str | None) -> None:
    assert found.continues == continues
    match found.then:
        case ():
            assert then is None
        case (GoalEnded() as ended,):
            assert ended.outcome == then
        case (GoalPaused() as paused,):
            assert paused.reason == then
        case _:
            raise AssertionError(found.then)


def test_the_decision_carries_its_evidence() -> None:
    checked = step("continue", evidence="a line", model="scripted:play", cost=100 + 5 * 10**8).checked

    assert (checked.reason, checked.evidence, checked.model) == ("because", "a line", "scripted:play")
    assert (checked.after_turn, checked.turns, checked.cost, checked.text) == ("turn-1", 3, 0.5, "reach it")


@pytest.mark.parametrize(
    ("text", "decision"),
    [
        ('{"decision": "done", "reason": "all pass"}', "done"),
        ('Here it is:\n```json\n{"decision": "Continue ", "reason": "two fail"}\n```', "continue"),
        ('{"decision": "stuck"}', "stuck"),
    ],
)
def test_a_clear_decision_is_understood(text: str, decision: str) -> None:
    assert parse(text).decision == decision


@pytest.mark.parametrize(
    "text",
    [
        *("", "done", "yes, it is done!", "{}", '{"decision": "maybe"}', '{"decision": ["done"]}', "null"),
        *("[" * 100_000, '{"decision": "done"} or {"decision": "continue"}', '{"decision": null}'),
        '{"decision": "failed"}',
    ],
)
def test_anything_else_is_a_failed_check_and_never_continues(text: str) -> None:
    with pytest.raises(BadReply):
        parse(text)


def test_a_long_reason_is_cut() -> None:
    assert len(parse('{"decision": "done", "reason": "' + "x" * 100_000 + '"}').reason) == 1_000


def test_the_request_has_the_goal_the_plan_and_the_end_of_the_conversation_within_limits() -> None:
    said = [Message(n, "user", (Text(f"message {n} {{braces}} " + "x" * 10_000),), 0) for n in range(1, 100)]
    result = Message(100, "tool", (ToolResult("call-1", (Text("y" * 1_000_000),), "ok"),), 0)
    plan = (PlanItem(content="first step", status="completed"),)
    text = prompt(changed(text="the {goal}", decision="continue", reason="not yet"), plan, [*said, result])

    assert "The goal:\nthe {goal}\n" in text
    assert "[x] first step" in text
    assert "3 of at most 5 turns" in text
    assert "The check before this one said: not yet" in text
    assert "message 99 {braces}" in text
    assert "message 1 " not in text
    assert len(text) < 40_000
