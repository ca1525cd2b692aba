"""The loop that runs turns: it takes the step that `next_step` returns, commits it, and asks again.

Each step is committed before the next begins. A crash therefore loses at most the current step, and the next worker can
tell a tool that never started from one that may have acted.
"""

from collections.abc import Coroutine
from typing import Any

import msgspec

from holdfast.engine.compaction.compact import CompactionSettings, compact, delete_used_chunks
from holdfast.engine.context import budget
from holdfast.engine.context.budget import ENOUGH, BudgetDecision
from holdfast.engine.turn.active_session import ActiveSession
from holdfast.engine.turn.instructions import load_instructions
from holdfast.engine.turn.memory_call import TOOLS, memory_owner
from holdfast.engine.turn.model_call import ModelCallSettings, call_model, count_tokens, spent
from holdfast.engine.turn.next_step import (
    CallModel,
    CloseUnknown,
    CompactContext,
    FinishTurn,
    RefuseCalls,
    RunTools,
    Step,
    next_step,
)
from holdfast.engine.turn.request import RequestFrame, build_frame
from holdfast.engine.turn.session_cache import complete_context
from holdfast.engine.turn.session_to_compact import session_to_compact
from holdfast.engine.turn.tool_call import ToolCallSettings, run_calls
from holdfast.model import goal
from holdfast.model.errors import Invalid
from holdfast.model.event import Event, TurnEnded, TurnOutcome
from holdfast.model.instructions import SKILL_TOOL, LoadInstructions
from holdfast.model.provider import AskModel, ToolSpec
from holdfast.model.turn import TOO_MANY, close, close_call, half_said, may_call_tools
from holdfast.tasks import LateHelper

FIRST_READ_SECONDS = 1.0
"""How long a step runs before the input queue is read although there was no notification."""
INTERRUPTED = "the turn was interrupted"
"""The reason of a turn that a person interrupted."""


class GoalCheckSettings(msgspec.Struct, frozen=True):
    """How goals are checked."""

    model: str
    """As `provider:name`."""
    ask: AskModel
    attempts: int
    """How many checks in a row may fail before the goal is paused."""


class TurnSettings(msgspec.Struct, frozen=True):
    """The settings of a session's turns."""

    model_call: ModelCallSettings
    tool_call: ToolCallSettings
    max_steps: int
    turn_seconds: float
    compaction: CompactionSettings | None = None
    """Without it the context is never compacted, and a full window ends the turn."""
    max_tokens: int = 0
    """How many tokens the model calls of a turn may take; 0 for any number."""
    instructions: LoadInstructions | None = None
    """Loads the project rules and the other recorded parts of the system text; without it there are none."""
    goal_check: GoalCheckSettings | None = None
    """Without it the session's goals are not checked here."""

    def repeatable(self, name: str) -> bool:
        try:
            return self.tool_call.toolbox.get(name).repeatable
        except Invalid:
            return False


async def run_turns(active: ActiveSession, settings: TurnSettings) -> bool:
    """Run the open turn and the queued ones until none is left: True.

    False if the worker shuts down and leaves a turn open for the next worker.
    """
    turn_id, deadline = None, 0.0
    while True:
        if settings.instructions is not None and active.turn.id != turn_id:
            await load_instructions(active, settings.instructions)
        step = await _next(active, settings)
        if step is None:
            return True
        now = active.services.clock.monotonic()
        if active.turn.id != turn_id:
            turn_id, deadline = active.turn.id, now + settings.turn_seconds
        if isinstance(step, FinishTurn):
            await active.end_turn([_ending(active, step)])
        elif active.pause.is_set():
            return False
        elif active.stop.is_set():
            await active.end_turn(closing(active, "interrupted", INTERRUPTED, goal.INTERRUPTED))
        elif now > deadline:
            reason = f"the turn took longer than {settings.turn_seconds:.0f} s, which is the limit"
            await active.end_turn(closing(active, "failed", reason, "turn_timeout"))
        elif 0 < settings.max_tokens <= count_tokens(active):
            reason = f"the turn used {count_tokens(active):,} tokens, and its limit is {settings.max_tokens:,}"
            await active.end_turn(closing(active, "failed", reason, "token_limit"))
        else:
            await _run_step(active, settings, step)


async def _next(active: ActiveSession, settings: TurnSettings) -> Step | None:
    if active.context.is_incomplete:
        await complete_context(active)
    return next_step(
        active.turn,
        repeatable=settings.repeatable,
        max_steps=settings.max_steps,
        room=lambda: _room(active, settings),
    )


def update_frame(active: ActiveSession, settings: TurnSettings) -> RequestFrame:
    """Return the frame of the turn's requests; build a new one only if something has changed."""
    compaction = settings.compaction
    terms = active.turn.terms
    if not may_call_tools(active.turn):
        terms = msgspec.structs.replace(terms, our_tools=False)
    active.frame = build_frame(
        terms,
        _own_tools(active, settings),
        session_system=active.context.system,
        default_system=settings.model_call.system,
        recorded=active.context.instructions,
        window=None if compaction is None else compaction.window,
        known=active.frame,
    )
    return active.frame


def _own_tools(active: ActiveSession, settings: TurnSettings) -> tuple[ToolSpec, ...]:
    """The tools of the session; without those for skills while there are none, and for memory in a turn that has none."""
    specs = settings.tool_call.toolbox.specs
    hidden: set[str] = set()
    listed = active.context.instructions.get("skills")
    if settings.instructions is not None and (listed is None or not listed.text):
        hidden.add(SKILL_TOOL)
    if settings.tool_call.memory is not None and not memory_owner(active, active.turn.id or ""):
        hidden.update(TOOLS)
    return tuple(spec for spec in specs if spec.name not in hidden) if hidden else specs


def _room(active: ActiveSession, settings: TurnSettings) -> BudgetDecision:
    """Whether the context leaves room for another reply."""
    context, compaction = active.context, settings.compaction
    frame = update_frame(active, settings)
    if compaction is None:
        return ENOUGH if context.refused is None else BudgetDecision("none", context.refused, budget.TOO_LONG)
    bounds = budget.bounds(compaction.window, compaction.compact_at, context.refused_tokens)
    return budget.decide(context, frame.tokens, bounds, active.turn.id or "")


async def _compact(active: ActiveSession, settings: TurnSettings) -> None:
    assert settings.compaction is not None, "only compaction makes room"
    outcome = await compact(
        session_to_compact(active, settings.model_call.meter),
        settings.compaction,
        update_frame(active, settings).tokens,
    )
    if outcome is not None:
        await active.commit([outcome], delete_used_chunks(outcome, active.id))


async def _run_step(
    active: ActiveSession,
    settings: TurnSettings,
    step: CallModel | CompactContext | RunTools | RefuseCalls | CloseUnknown,
) -> None:
    """Take one step, or a part of it if the turn is to stop."""
    match step:
        case CloseUnknown(calls):
            await active.commit([close_call(active.turn, call) for call in calls])
        case RefuseCalls(calls):
            known = TOO_MANY.format(active.turn.terms.max_tool_calls)
            await active.commit([close_call(active.turn, call, known) for call in calls])
        case RunTools(calls):
            await unless_stopped(active, run_calls(active, settings.tool_call, calls))
        case CompactContext():
            await unless_stopped(active, _compact(active, settings))
        case CallModel():
            if active.queued:
                before = active.session.seq
                await active.join_steering()
                if active.session.seq != before:
                    return  # there may be no room for a reply any more
            assert active.turn.id is not None and active.frame is not None, "`_room` has built the frame"
            request = active.frame.request(active.context, active.turn.id, settings.model_call.model)
            if active.at_work:
                await active.end_preparation()
            await unless_stopped(active, call_model(active, settings.model_call, request))


async def unless_stopped(active: ActiveSession, work: Coroutine[Any, Any, None]) -> None:
    """Run the work until it is done or the turn is to stop: a notification of the store makes us read the input queue.

    A change between the last commit and the subscription causes no notification. So the queue is also read once after
    `FIRST_READ_SECONDS`; a turn that ends earlier reads the queue at its end.
    """
    watch = LateHelper(active.until_stopped)
    with active.on_change(watch.start):
        await watch.run_beside(work, after=FIRST_READ_SECONDS)


def closing(active: ActiveSession, outcome: TurnOutcome, reason: str, code: str = "") -> list[Event]:
    """The events that end a turn early: the text so far is kept, and every call gets exactly one result."""
    assert active.turn.id is not None
    said: list[Event] = [half_said(active.turn.id, active.said, active.asked)] if active.said else []
    return [
        *said,
        *close(
            active.turn,
            outcome=outcome,
            reason=reason,
            code=code,
            usage=spent(active.entries, active.turn.id),
            called=active.asked,
        ),
    ]


def _ending(active: ActiveSession, step: FinishTurn) -> TurnEnded:
    assert active.turn.id is not None
    usage = spent(active.entries, active.turn.id)
    return TurnEnded(
        turn_id=active.turn.id,
        outcome=step.outcome,
        reason=step.reason,
        code=step.code,
        usage=usage,
        awaiting=step.awaiting,
    )
