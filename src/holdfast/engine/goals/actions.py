"""What people do with the goal of a session: set, show, pause, resume and clear it."""

from collections.abc import Callable

import msgspec

from holdfast.engine.goals.step import get_cost
from holdfast.engine.services import EngineServices
from holdfast.model.errors import Conflict, Invalid
from holdfast.model.event import Event, GoalEnded, GoalPaused, GoalResumed, GoalSet
from holdfast.model.goal import OPEN, TEXT_LENGTH, Goal, describe_goal
from holdfast.model.message import Text
from holdfast.model.price import HIGHEST_COST, to_nano
from holdfast.model.session import CHILD
from holdfast.model.times import SECOND
from holdfast.store.database import Transaction
from holdfast.store.repos import goals, input_queue, log, sessions
from holdfast.store.spending import usage

GOAL = "goal-"
MOST_TURNS = 1_000
MOST_HOURS = 24 * 365


class GoalLimits(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of a goal."""

    max_turns: int = 20
    max_hours: float = 24.0
    max_cost: float | None = None
    """In US dollars."""


class GoalChanges(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of one goal that differ from the settings."""

    max_turns: int | None = None
    max_hours: float | None = None
    max_cost: float | None = None


DEFAULT = GoalChanges()
GoalChange = Callable[[Goal], Event | None]
"""Returns what to log, if anything."""


class Goals:
    """One per worker. `limits` are those of the settings."""

    def __init__(self, services: EngineServices, limits: GoalLimits | None = None) -> None:
        self._services = services
        self.limits = limits or GoalLimits()

    async def get(self, session_id: str) -> Goal | None:
        """The newest goal of the session; None if it never had one."""
        return await self._services.database.read(goals.get, session_id)

    async def plan(self, session_id: str | None, text: str, *, by: str, changes: GoalChanges = DEFAULT) -> GoalSet:
        """The event that sets a goal, to be submitted with the message that starts it. Raises Invalid.

        `session_id` is None if the session does not exist yet.
        """
        text = text.strip()
        if not text:
            raise Invalid("the goal is empty; describe the result in a sentence")
        if len(text) > TEXT_LENGTH:
            raise Invalid(
                f"the goal has {len(text):,} characters; the limit is {TEXT_LENGTH:,}. Put details into a file"
            )
        limits = _with_changes(self.limits, changes)
        services, cost = self._services, 0
        if session_id is not None:
            await usage.catch_up(services.database)
            session = await services.database.read(sessions.get, session_id)
            if session.summary.source == CHILD and session.summary.ended_at is None:
                raise Invalid(f"session {session_id} is a sub-agent: its task is its goal")
            cost = await services.database.read(get_cost, session_id)
        return GoalSet(
            goal_id=services.ids.make(GOAL),
            text=text,
            deadline_at=services.clock.now() + int(limits.max_hours * 3600 * SECOND),
            max_turns=limits.max_turns,
            max_cost=None if limits.max_cost is None else to_nano(limits.max_cost),
            cost_before=cost,
            by=by,
        )

    async def pause(self, session_id: str, *, by: str, reason: str = "a person paused it") -> Goal:
        """Pause an active goal; a paused one stays as it is. Its running turn goes on. Raises Conflict if there is none."""

        def change(goal: Goal) -> Event | None:
            return GoalPaused(goal_id=goal.id, reason=reason, by=by) if goal.state == "active" else None

        return await self._change(session_id, change)

    async def resume(self, session_id: str, *, by: str) -> Goal:
        """Resume a paused goal, with the same limits again but for its deadline. Raises Conflict if it has ended."""
        await usage.catch_up(self._services.database)
        cost = await self._services.database.read(get_cost, session_id)

        def change(goal: Goal) -> Event | None:
            return GoalResumed(goal_id=goal.id, cost_before=cost, by=by) if goal.state == "paused" else None

        return await self._change(session_id, change)

    async def clear(self, session_id: str, *, by: str) -> Goal:
        """End the goal. Its running turn goes on. Raises Conflict if there is none."""

        def change(goal: Goal) -> Event | None:
            return GoalEnded(goal_id=goal.id, outcome="cleared", reason="a person cleared it", by=by)

        return await self._change(session_id, change)

    async def _change(self, session_id: str, change: GoalChange) -> Goal:
        at = self._services.clock.now()

        def work(tx: Transaction) -> Goal:
            goal = goals.get_locked(tx, session_id)
            if goal is None:
                raise Conflict(f"session {session_id} has no goal; set one with /goal TEXT")
            if goal.state not in OPEN or goal.deadline_at <= at:
                state = describe_goal(goal) if goal.state not in OPEN else "expired"
                raise Conflict(f"the goal of session {session_id} is over: {state}. Set a new one with /goal TEXT")
            event = change(goal)
            if event is not None:
                log.annotate(tx, session_id, event, at=at)
            changed = goals.get(tx, session_id)
            assert changed is not None, "a goal is never forgotten"
            return changed

        return await self._services.database.write(work)


def find_queued(tx: Transaction, session_id: str, text: str) -> str | None:
    """The queued turn that will set this goal, if there is one."""
    turns = (
        one.turn_id
        for one in input_queue.list_waiting(tx, session_id)
        for event in one.before
        if isinstance(event, GoalSet) and event.text == text
    )
    return next(turns, None)


def is_set(tx: Transaction, session_id: str, text: str) -> bool:
    """Whether this goal is active or queued. It stays so until the end of the transaction."""
    goal = goals.get_locked(tx, session_id)
    is_active = goal is not None and (goal.state, goal.text) == ("active", text)
    return is_active or find_queued(tx, session_id, text) is not None


def first_message(goal: GoalSet) -> tuple[Text, ...]:
    """The message that starts the work on a goal."""
    return (Text(goal.text),)


def _with_changes(limits: GoalLimits, changes: GoalChanges) -> GoalLimits:
    """The limits of one goal. Raises Invalid for impossible ones."""
    turns = limits.max_turns if changes.max_turns is None else changes.max_turns
    hours = limits.max_hours if changes.max_hours is None else changes.max_hours
    cost = limits.max_cost if changes.max_cost is None else changes.max_cost
    if not 1 <= turns <= MOST_TURNS:
        raise Invalid(f"a goal may take 1 to {MOST_TURNS:,} turns, not {turns}")
    if not 0 < hours <= MOST_HOURS:
        raise Invalid(f"a goal may take more than 0 and up to {MOST_HOURS:,} hours, not {hours:g}")
    if cost is not None and not 0 < cost <= HIGHEST_COST:
        raise Invalid(f"a goal may cost more than 0 and up to {HIGHEST_COST:,.0f} US dollars, not {cost:g}")
    return GoalLimits(max_turns=turns, max_hours=hours, max_cost=cost)
