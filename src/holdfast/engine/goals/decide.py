"""Decides what follows from a check of a goal. Pure: the tests contain the whole behaviour as a table."""

import msgspec

from holdfast.model.event import Event, GoalChecked, GoalDecision, GoalEnded, GoalPaused
from holdfast.model.goal import Goal
from holdfast.model.price import NANO, format_money
from holdfast.model.text import counted


class GoalVerdict(msgspec.Struct, frozen=True):
    """What a check says. `failed` means that there was no usable answer; a `final` failure would happen again."""

    decision: GoalDecision
    reason: str = ""
    evidence: str = ""
    model: str = ""
    final: bool = False


class GoalStep(msgspec.Struct, frozen=True):
    """The events of a decision. With `continues`, the check is the first event of the next turn."""

    checked: GoalChecked
    then: tuple[Event, ...] = ()
    continues: bool = False


def decide(goal: Goal, verdict: GoalVerdict, *, cost: int, attempts: int, at: int) -> GoalStep:
    """The step after a check. `cost` is what the session has cost, in nano-dollars; `attempts`, how many checks may fail."""
    spent = max(0, cost - goal.cost_before)
    attempt = goal.failed_checks + 1
    checked = GoalChecked(
        goal_id=goal.id,
        after_turn=goal.turn_id,
        decision=verdict.decision,
        reason=verdict.reason,
        evidence=verdict.evidence,
        model=verdict.model,
        turns=goal.turns,
        cost=spent / NANO,
        attempt=attempt,
    )
    match verdict.decision:
        case "done":
            return GoalStep(checked, (GoalEnded(goal_id=goal.id, outcome="done", reason=verdict.reason),))
        case "stuck":
            return GoalStep(checked, (_paused(goal, f"the check says it is stuck: {verdict.reason}"),))
        case "failed" if verdict.final:
            return GoalStep(checked, (_paused(goal, f"it could not be checked: {verdict.reason}"),))
        case "failed" if attempt >= attempts:
            failures = f"the check failed {counted(attempt, 'time')} in a row: {verdict.reason}"
            return GoalStep(checked, (_paused(goal, failures),))
        case "failed":
            return GoalStep(checked)
        case "continue":
            return _within_limits(goal, checked, spent, at)


def _within_limits(goal: Goal, checked: GoalChecked, spent: int, at: int) -> GoalStep:
    """Continue, unless a limit is reached."""
    if at >= goal.deadline_at:
        return GoalStep(checked, (expired(goal),))
    if goal.turns >= goal.max_turns:
        return GoalStep(checked, (_paused(goal, f"it has taken {counted(goal.turns, 'turn')}, which is the limit"),))
    if goal.max_cost is not None and spent >= goal.max_cost:
        limit = f"{format_money(spent)} of {format_money(goal.max_cost)}"
        return GoalStep(checked, (_paused(goal, f"its budget is used up: {limit} is spent"),))
    return GoalStep(msgspec.structs.replace(checked, text=goal.text), continues=True)


def expired(goal: Goal) -> GoalEnded:
    return GoalEnded(goal_id=goal.id, outcome="expired", reason="its time limit was reached")


def _paused(goal: Goal, reason: str) -> GoalPaused:
    return GoalPaused(goal_id=goal.id, reason=reason)
