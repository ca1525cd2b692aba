"""What a turn needs next. Pure: the whole behaviour is a table in the tests."""

from collections.abc import Callable

import msgspec

from holdfast.model.event import TurnOutcome
from holdfast.model.message import ToolCall
from holdfast.model.turn import Turn


class Ask(msgspec.Struct, frozen=True):
    """Call the model."""


class Act(msgspec.Struct, frozen=True):
    """Run these calls, side by side."""

    calls: tuple[ToolCall, ...]


class CloseUnknown(msgspec.Struct, frozen=True):
    """Give these calls a result that says their outcome is unknown: they may have acted and must not act again."""

    calls: tuple[ToolCall, ...]


class Finish(msgspec.Struct, frozen=True):
    """End the turn."""

    outcome: TurnOutcome
    reason: str = ""
    code: str = ""


Step = Ask | Act | CloseUnknown | Finish


def next_step(turn: Turn, *, repeatable: Callable[[str], bool], max_steps: int) -> Step | None:
    """What the turn needs now; None when no turn is open.

    A call that was started and has no result belongs to a process that died: it is closed as
    unknown unless its tool changes nothing.
    """
    if turn.id is None:
        return None
    lost = tuple(call for call in turn.open_calls if call.id in turn.started and not repeatable(call.name))
    if lost:
        return CloseUnknown(lost)
    if turn.open_calls:
        return Act(turn.open_calls)
    if not turn.owes_reply:
        return Finish("done")
    if turn.steps >= max_steps:
        return Finish("failed", f"the turn took {turn.steps} steps without an end, which is the limit", "max_steps")
    return Ask()
