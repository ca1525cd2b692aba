"""The goal of a session, folded from its log. Pure.

A goal is *active* or *paused* until it ends. While it is active, it is checked after each turn, and the session continues
with it if the check says so. It ends when it is reached (*done*), at its deadline (*expired*), when a person clears it
(*cleared*), or with its session (*ended*). An ended goal never becomes active again; a person can set a new one.
"""

from typing import Literal

import msgspec

from holdfast.model.event import (
    Ended,
    Event,
    Forked,
    GoalChecked,
    GoalDecision,
    GoalEnded,
    GoalPaused,
    GoalResumed,
    GoalSet,
    Imported,
    Recovered,
    Reopened,
    Rewound,
    Trashed,
    TurnEnded,
    TurnStarted,
)
from holdfast.model.price import format_money
from holdfast.model.sanitize import one_line
from holdfast.model.text import counted
from holdfast.model.times import iso

GoalState = Literal["", "active", "paused", "done", "expired", "cleared", "ended"]
"""Empty: the session never had a goal."""
OPEN = ("active", "paused")
GOAL_EVENTS: frozenset[type[Event]] = frozenset(
    {
        GoalSet,
        GoalChecked,
        GoalPaused,
        GoalResumed,
        GoalEnded,
        TurnStarted,
        TurnEnded,
        Recovered,
        Rewound,
        Ended,
        Reopened,
        Trashed,
        Forked,
        Imported,
    }
)
"""Events that can change a goal, or let it be checked."""
MOVING: frozenset[type[Event]] = GOAL_EVENTS - {GoalChecked, TurnStarted, Recovered, Reopened}
"""Events that can change the state of a goal."""
KEPT_ENDS = ("reaped", "recovered", "compression")
"""End reasons of sessions that nobody decided to end: the goal continues when the session is reopened."""
PAUSING_ENDS = {"cli_close": "the chat was closed", "idle": "the session ended as idle", "error": "the session failed"}
"""End reasons after which the session is usually continued, with the reason of the pause."""
INTERRUPTED = "interrupted"
"""The code of a turn that a person interrupted. Turns that died with their worker have none."""
CHECKED_FAILURES = ("max_steps", "turn_timeout", "token_limit")
"""Codes of failed turns that were only too long: the goal is checked after them as after others."""
TEXT_LENGTH = 4_000
"""The longest goal, in characters."""


class Goal(msgspec.Struct, frozen=True, kw_only=True):
    """What the log says about the newest goal of a session."""

    id: str
    text: str
    state: GoalState
    by: str
    set_at: int
    deadline_at: int
    max_turns: int
    max_cost: int | None
    """In nano-dollars."""
    cost_before: int
    """What the session had cost when the goal was set or last resumed, in nano-dollars."""
    turns: int = 0
    """Turns that ended since the goal was set or last resumed."""
    total_turns: int = 0
    due: bool = False
    """Whether it is to be checked: a turn has ended since the last check, or a person resumed it."""
    turn_id: str = ""
    """The newest turn that ended."""
    worker_id: str = ""
    """The worker of the newest turn."""
    decision: GoalDecision | None = None
    """The result of the newest check."""
    failed_checks: int = 0
    """Checks in a row that failed."""
    reason: str = ""
    """Why the goal is in its state; while it is active, what the newest check said."""
    changed_at: int = 0


def next_state(state: GoalState, event: Event) -> GoalState:
    """The state of the goal after one more event."""
    match event:
        case GoalSet():
            return "active"
        case Forked() | Imported():
            return ""
        case GoalEnded() if state in OPEN:
            return event.outcome
        case GoalResumed() if state == "paused":
            return "active"
        case Trashed() if state in OPEN:
            return "ended"
        case Ended() if state in OPEN and event.reason not in (*KEPT_ENDS, *PAUSING_ENDS):
            return "ended"
        case _:
            return "paused" if state == "active" and pause_reason(event) is not None else state


def pause_reason(event: Event) -> str | None:
    """Why an active goal pauses at this event; None if it does not."""
    match event:
        case GoalPaused():
            return event.reason or "it was paused"
        case Ended():
            return PAUSING_ENDS.get(event.reason)
        case Rewound(why="undo"):
            return "the conversation was taken back"
        case TurnEnded(outcome="cancelled"):
            return "its turn was cancelled"
        case TurnEnded(outcome="interrupted", code=code) if code == INTERRUPTED:
            return "its turn was interrupted"
        case TurnEnded(outcome="failed", code=code) if code not in CHECKED_FAILURES:
            return f"its turn failed: {event.reason or 'no reason was given'}"
        case _:
            return None


def fold_goal(goal: Goal | None, event: Event, at: int) -> Goal | None:
    """The goal after one more event; None if the session has none."""
    if isinstance(event, GoalSet):
        return _new_goal(event, at)
    if goal is None or isinstance(event, Forked | Imported):
        return None
    if goal.state not in OPEN:
        return goal
    state = next_state(goal.state, event)
    changes: dict[str, object] = {} if state == goal.state else {"state": state, "changed_at": at}
    if state not in (goal.state, "active"):
        changes |= {"due": False, "reason": _reason(event)}
    return msgspec.structs.replace(goal, **{**_progress(goal, event), **changes})


def _new_goal(event: GoalSet, at: int) -> Goal:
    return Goal(
        id=event.goal_id,
        text=event.text,
        state="active",
        by=event.by,
        set_at=at,
        deadline_at=event.deadline_at,
        max_turns=event.max_turns,
        max_cost=event.max_cost,
        cost_before=event.cost_before,
        changed_at=at,
    )


def _progress(goal: Goal, event: Event) -> dict[str, object]:
    """What the event changes besides the state."""
    match event:
        case TurnStarted() | Recovered():
            return {"worker_id": event.worker_id}
        case TurnEnded() if goal.state == "active":
            count = int(not event.awaiting)
            return {
                "due": not event.awaiting,
                "turn_id": event.turn_id,
                "turns": goal.turns + count,
                "total_turns": goal.total_turns + count,
            }
        case GoalChecked(decision="failed"):
            return {"decision": "failed", "reason": event.reason, "failed_checks": goal.failed_checks + 1}
        case GoalChecked():
            return {"decision": event.decision, "reason": event.reason, "failed_checks": 0, "due": False}
        case GoalResumed():
            return {"turns": 0, "failed_checks": 0, "due": True, "reason": "", "cost_before": event.cost_before}
        case _:
            return {}


def _reason(event: Event) -> str:
    """Why the goal left its state at this event."""
    match event:
        case GoalEnded():
            return event.reason
        case Trashed():
            return "its session was moved to the trash"
        case Ended() if event.reason not in PAUSING_ENDS:
            return f"its session ended: {event.detail or event.reason}"
        case _:
            return pause_reason(event) or ""


def describe_goal(goal: Goal) -> str:
    """The state of a goal on one line, without its text."""
    limits = f"{goal.turns} of {counted(goal.max_turns, 'turn')}"
    if goal.state == "active":
        check = "" if goal.decision is None else f"; last check: {goal.decision}: {one_line(goal.reason)}"
        return f"active, {limits}, until {iso(goal.deadline_at)[:16]}Z{cost_limit(goal)}{check}"
    reason = f": {one_line(goal.reason)}" if goal.reason else ""
    if goal.state == "paused":
        return f"paused{reason} ({limits}, expires {iso(goal.deadline_at)[:16]}Z{cost_limit(goal)})"
    return f"{goal.state} after {counted(goal.total_turns, 'turn')}{reason}"


def cost_limit(goal: Goal) -> str:
    return "" if goal.max_cost is None else f", up to {format_money(goal.max_cost)}"
