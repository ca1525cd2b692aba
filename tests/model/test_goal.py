"""The states of a goal as a table: every event that can change it, in every state."""

import pytest

from holdfast.model.event import (
    Ended,
    Event,
    Forked,
    GoalChecked,
    GoalEnded,
    GoalPaused,
    GoalResumed,
    GoalSet,
    Imported,
    Recovered,
    Rewound,
    Trashed,
    TurnEnded,
    TurnStarted,
    UserSaid,
)
from holdfast.model.goal import GOAL_EVENTS, MOVING, Goal, GoalState, describe_goal, fold_goal, next_state
from holdfast.model.session import SessionSummary, fold

SET = GoalSet(goal_id="goal-1", text="reach it", deadline_at=1_000, max_turns=5)


def turn(outcome: str = "done", **fields: object) -> TurnEnded:
    return TurnEnded(turn_id="turn-1", outcome=outcome, **fields)  # type: ignore[arg-type]


def goal(*events: Event) -> Goal:
    found: Goal | None = None
    for at, event in enumerate((SET, *events), 1):
        found = fold_goal(found, event, at)
    assert found is not None
    return found


CASES: list[tuple[Event, GoalState, GoalState]] = [
    (SET, "active", "active"),
    (GoalPaused(goal_id="goal-1"), "paused", "paused"),
    (GoalResumed(goal_id="goal-1"), "active", "active"),
    (GoalEnded(goal_id="goal-1", outcome="done"), "done", "done"),
    (GoalEnded(goal_id="goal-1", outcome="expired"), "expired", "expired"),
    (GoalEnded(goal_id="goal-1", outcome="cleared"), "cleared", "cleared"),
    (GoalChecked(goal_id="goal-1", after_turn="", decision="done"), "active", "paused"),
    (turn(), "active", "paused"),
    (turn(awaiting=("call-1",)), "active", "paused"),
    (turn("failed", code="max_steps"), "active", "paused"),
    (turn("failed", code="turn_timeout"), "active", "paused"),
    (turn("failed", code="token_limit"), "active", "paused"),
    (turn("failed", code="budget_exceeded"), "paused", "paused"),
    (turn("failed", code="provider_failed"), "paused", "paused"),
    (turn("failed", code="quarantined"), "paused", "paused"),
    (turn("cancelled"), "paused", "paused"),
    (turn("interrupted", code="interrupted"), "paused", "paused"),
    (turn("interrupted", reason="the worker died"), "active", "paused"),
    (Rewound(to_seq=1), "paused", "paused"),
    (Rewound(to_seq=1, why="retry"), "active", "paused"),
    (Trashed(), "ended", "ended"),
    *((Ended(reason=reason), "active", "paused") for reason in ("reaped", "recovered", "compression")),
    *((Ended(reason=reason), "paused", "paused") for reason in ("cli_close", "idle", "error")),
    *(
        (Ended(reason=reason), "ended", "ended")
        for reason in ("user", "session_reset", "cron_complete", "batch_complete", "delegate_complete")
    ),
    (Forked(parent_id="ses-1", at_seq=1, at_hash=""), "", ""),
    (Imported(format="holdfast"), "", ""),
]


@pytest.mark.parametrize(("event", "from_active", "from_paused"), CASES)
def test_the_state_after_an_event(event: Event, from_active: GoalState, from_paused: GoalState) -> None:
    assert next_state("active", event) == from_active
    assert next_state("paused", event) == from_paused


@pytest.mark.parametrize("over", ["done", "expired", "cleared", "ended"])
@pytest.mark.parametrize("event", [case[0] for case in CASES if not isinstance(case[0], GoalSet | Forked | Imported)])
def test_nothing_but_a_new_goal_changes_one_that_is_over(over: GoalState, event: Event) -> None:
    assert next_state(over, event) == over
    assert next_state(over, SET) == "active"


def test_the_summary_and_the_row_agree_about_the_state() -> None:
    for event, *_ in CASES:
        for before in ((), (GoalPaused(goal_id="goal-1"),), (GoalEnded(goal_id="goal-1", outcome="done"),)):
            summary, folded = SessionSummary(), None
            for at, one in enumerate((SET, *before, event), 1):
                summary, folded = fold(summary, one, at), fold_goal(folded, one, at)
            assert summary.goal == ("" if folded is None else folded.state), event


def test_only_known_events_change_a_goal() -> None:
    said = UserSaid(turn_id="turn-1", parts=())

    assert UserSaid not in GOAL_EVENTS
    assert fold_goal(goal(), said, 2) == goal()
    assert MOVING < GOAL_EVENTS


def test_a_turn_makes_the_goal_due_and_a_check_does_not_leave_it_due() -> None:
    assert not goal().due
    assert goal(turn()).due
    assert goal(turn()).turns == 1
    assert not goal(turn(awaiting=("call-1",))).due, "the client runs a call first"
    assert goal(turn(awaiting=("call-1",))).turns == 0
    assert goal(turn(), GoalChecked(goal_id="goal-1", after_turn="turn-1", decision="failed")).due
    assert not goal(turn(), GoalChecked(goal_id="goal-1", after_turn="turn-1", decision="continue")).due
    assert not goal(turn("interrupted", code="interrupted")).due


def test_failed_checks_are_counted_until_one_succeeds() -> None:
    failed = GoalChecked(goal_id="goal-1", after_turn="turn-1", decision="failed")

    assert goal(turn(), failed, failed).failed_checks == 2
    assert goal(turn(), failed, GoalChecked(goal_id="goal-1", after_turn="", decision="continue")).failed_checks == 0


def test_a_resumed_goal_is_checked_and_its_limits_begin_again_but_for_the_deadline() -> None:
    resumed = goal(turn(), turn(), GoalPaused(goal_id="goal-1"), GoalResumed(goal_id="goal-1", cost_before=7))

    assert (resumed.turns, resumed.total_turns, resumed.cost_before) == (0, 2, 7)
    assert resumed.due
    assert resumed.deadline_at == SET.deadline_at


def test_the_worker_of_the_newest_turn_is_known() -> None:
    started = TurnStarted(turn_id="turn-1", worker_id="wrk-1")
    recovered = Recovered(turn_id="turn-1", attempt=1, action="continue", worker_id="wrk-2")

    assert goal(started).worker_id == "wrk-1"
    assert goal(started, recovered).worker_id == "wrk-2"


@pytest.mark.parametrize(
    ("event", "reason"),
    [
        (GoalPaused(goal_id="goal-1", reason="it is stuck"), "it is stuck"),
        (turn("failed", reason="no money"), "its turn failed: no money"),
        (turn("interrupted", code="interrupted"), "its turn was interrupted"),
        (Ended(reason="cli_close"), "the chat was closed"),
        (Ended(reason="user", detail="from the API"), "its session ended: from the API"),
        (Trashed(), "its session was moved to the trash"),
        (GoalEnded(goal_id="goal-1", outcome="cleared", reason="a person cleared it"), "a person cleared it"),
    ],
)
def test_the_reason_of_a_state_is_kept(event: Event, reason: str) -> None:
    assert goal(event).reason == reason
    assert reason in describe_goal(goal(event))


def test_a_new_goal_replaces_the_old_one_completely() -> None:
    second = GoalSet(goal_id="goal-2", text="another", deadline_at=2_000, max_turns=1)

    assert goal(turn(), GoalPaused(goal_id="goal-1"), second) == fold_goal(None, second, 4)
