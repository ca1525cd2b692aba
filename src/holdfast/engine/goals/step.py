"""Checks a goal between two turns, and commits the decision together with the start of the next turn.

The session's lease is held from before the call of the model to that commit, so two workers never continue one goal at
once. If the worker dies in between, nothing was decided, and another worker checks again. Input of the user comes first:
it stops the check, and the goal is checked after its turn.
"""

from collections.abc import Coroutine
from typing import Any, TypeVar

from holdfast.engine.goals.check import check_goal
from holdfast.engine.goals.decide import GoalStep, decide
from holdfast.engine.goals.notice import send_notice
from holdfast.engine.notifications import TopicListener
from holdfast.engine.turn.active_session import ActiveSession
from holdfast.engine.turn.between_turns import CommitBetweenTurns
from holdfast.engine.turn.loop import FIRST_READ_SECONDS, TurnSettings
from holdfast.model.errors import Conflict, Unavailable
from holdfast.model.event import UserSaid
from holdfast.model.goal import Goal
from holdfast.model.ids import TURN
from holdfast.store.database import Transaction
from holdfast.store.repos import goals, input_queue, outbox, plans
from holdfast.store.repos.input_queue import Input
from holdfast.store.spending import budget, usage
from holdfast.tasks import LateHelper

T = TypeVar("T")
NOTHING = CommitBetweenTurns([])


async def check_and_continue(active: ActiveSession, settings: TurnSettings) -> CommitBetweenTurns:
    """Check the goal of a session without an open turn. Commits nothing if there is nothing to check, or input comes first."""
    database, clock = active.services.database, active.services.clock
    goal = await database.read(goals.get, active.id)
    if goal is None or not goal.due or settings.goal_check is None or goal.deadline_at <= clock.now():
        return NOTHING
    plan = await database.read(plans.current, active.id)
    verdict = await _unless_input(active, goal, check_goal(active, settings, goal, plan))
    if verdict is None:
        return NOTHING
    if active.pause.is_set():
        raise Unavailable(f"this worker is shutting down; the goal of session {active.id} is checked by another one")
    await usage.catch_up(database)
    cost = await database.read(get_cost, active.id)
    step = decide(goal, verdict, cost=cost, attempts=settings.goal_check.attempts, at=clock.now())
    return _commit(active, goal, step)


def get_cost(tx: Transaction, session_id: str) -> int:
    """What the session and its sub-agents have cost, in nano-dollars."""
    return budget.get_tree_cost(tx, session_id).spent


def _commit(active: ActiveSession, goal: Goal, step: GoalStep) -> CommitBetweenTurns:
    session_id, at = active.id, active.services.clock.now()

    def require_unchanged(tx: Transaction) -> None:
        current = goals.get(tx, session_id)
        if current is None or (current.id, current.state, current.due) != (goal.id, "active", True):
            raise Conflict(f"the goal of session {session_id} was changed while it was checked")

    def notify(tx: Transaction) -> None:
        changed = goals.get(tx, session_id)
        if changed is not None and changed.state != "active":
            send_notice(tx, session_id, changed, at=at)

    if not step.continues:
        return CommitBetweenTurns([step.checked, *step.then], (notify,), check=require_unchanged)
    turn_id = active.services.ids.make(TURN)

    def keep_addresses(tx: Transaction) -> None:
        if goal.turn_id:
            outbox.copy_reply_addresses(tx, session_id, goal.turn_id, turn_id)

    following = Input(turn_id, "queue", UserSaid(turn_id=turn_id, parts=()), before=(step.checked,))
    return CommitBetweenTurns([], (keep_addresses,), then=following, check=require_unchanged)


async def _unless_input(active: ActiveSession, goal: Goal, work: Coroutine[Any, Any, T]) -> T | None:
    """Run the work; None if input arrived before its end, or the goal was changed."""
    watch = LateHelper(lambda: _until_input(active, goal))
    with active.on_change(watch.start):
        return await watch.run_beside(work, after=FIRST_READ_SECONDS)


async def _until_input(active: ActiveSession, goal: Goal) -> None:
    def is_superseded(tx: Transaction) -> bool:
        current = goals.get(tx, active.id)
        is_changed = current is None or (current.id, current.state) != (goal.id, "active")
        return is_changed or any(item.said is not None for item in input_queue.list_waiting(tx, active.id))

    with TopicListener(active.services.database, active.id) as listener:
        while True:
            await listener.wait(None)
            if await active.services.database.read(is_superseded):
                return
