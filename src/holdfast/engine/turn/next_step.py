"""Decides the next step of a turn. Pure: the tests contain the whole behaviour as a table."""

from collections.abc import Callable

import msgspec

from holdfast.engine.context.budget import ENOUGH, BudgetDecision
from holdfast.model.event import TurnOutcome
from holdfast.model.message import ToolCall
from holdfast.model.text import counted
from holdfast.model.turn import Turn


class CallModel(msgspec.Struct, frozen=True):
    """Call the model."""


class CompactContext(msgspec.Struct, frozen=True):
    """Compact the context, so that the model can be called."""


class RunTools(msgspec.Struct, frozen=True):
    """Run these calls concurrently."""

    calls: tuple[ToolCall, ...]


class RefuseCalls(msgspec.Struct, frozen=True):
    """Give these calls no result but that the request allows no more calls."""

    calls: tuple[ToolCall, ...]


class CloseUnknown(msgspec.Struct, frozen=True):
    """Close these calls with outcome unknown: they may have acted and must not act again."""

    calls: tuple[ToolCall, ...]


class FinishTurn(msgspec.Struct, frozen=True):
    """End the turn."""

    outcome: TurnOutcome
    reason: str = ""
    code: str = ""
    awaiting: tuple[str, ...] = ()
    """Calls that the client runs."""


Step = CallModel | CompactContext | RunTools | RefuseCalls | CloseUnknown | FinishTurn


def next_step(
    turn: Turn,
    *,
    repeatable: Callable[[str], bool],
    max_steps: int,
    room: Callable[[], BudgetDecision] = lambda: ENOUGH,
) -> Step | None:
    """The next step; None if no turn is open. `room` decides whether the context leaves room for a reply.

    A call that was started and has no result belongs to a process that died: it is closed as unknown, unless its tool
    changes nothing or can continue it. Calls of the client's tools end the turn: their results come with the next one.
    """
    if turn.id is None:
        return None
    offered = {offer.name for offer in turn.terms.tools}
    if lost := turn.lost_calls(repeatable):
        return CloseUnknown(lost)
    if ours := tuple(call for call in turn.open_calls if call.name not in offered):
        allowed = _allowed(turn, ours)
        return RunTools(allowed) if allowed else RefuseCalls(ours)
    if turn.open_calls:
        return FinishTurn("done", awaiting=tuple(call.id for call in turn.open_calls))
    if not turn.owes_reply:
        return FinishTurn("done")
    if turn.steps >= max_steps:
        return FinishTurn(
            "failed", f"the turn took {counted(turn.steps, 'step')} without an end, which is the limit", "max_steps"
        )
    left = room()
    match left.kind:
        case "short":
            return CompactContext()
        case "none":
            return FinishTurn("failed", left.reason, left.code)
        case _:
            return CallModel()


def _allowed(turn: Turn, calls: tuple[ToolCall, ...]) -> tuple[ToolCall, ...]:
    """The calls that the turn may run: those that have started, and new ones up to the limit of the request."""
    if turn.terms.max_tool_calls is None:
        return calls
    begun = [call for call in calls if call.id in turn.started]
    new = [call for call in calls if call.id not in turn.started]
    return (*begun, *new[: max(0, turn.terms.max_tool_calls - turn.tool_calls)])
