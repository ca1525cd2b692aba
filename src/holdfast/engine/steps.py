"""What a turn needs next. Pure: the whole behaviour is a table in the tests."""

from collections.abc import Callable

import msgspec

from holdfast.engine.room import ENOUGH, Room
from holdfast.model.event import TurnOutcome
from holdfast.model.message import ToolCall
from holdfast.model.turn import Turn


class Ask(msgspec.Struct, frozen=True):
    """Call the model."""


class Compact(msgspec.Struct, frozen=True):
    """Make the context smaller, so that the model can be asked."""


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
    awaiting: tuple[str, ...] = ()
    """Calls that the client is to run."""


Step = Ask | Compact | Act | CloseUnknown | Finish


def next_step(
    turn: Turn, *, repeatable: Callable[[str], bool], max_steps: int, room: Callable[[], Room] = lambda: ENOUGH
) -> Step | None:
    """What the turn needs now; None when no turn is open. `room` tells whether the context leaves room for a reply.

    A call that was started and has no result belongs to a process that died: it is closed as
    unknown unless its tool changes nothing. Calls of the client's tools end the turn: their results come with the next.
    """
    if turn.id is None:
        return None
    offered = {offer.name for offer in turn.terms.tools}
    lost = tuple(call for call in turn.open_calls if call.id in turn.started and not repeatable(call.name))
    if lost:
        return CloseUnknown(lost)
    if ours := tuple(call for call in turn.open_calls if call.name not in offered):
        return Act(ours)
    if turn.open_calls:
        return Finish("done", awaiting=tuple(call.id for call in turn.open_calls))
    if not turn.owes_reply:
        return Finish("done")
    if turn.steps >= max_steps:
        return Finish("failed", f"the turn took {turn.steps} steps without an end, which is the limit", "max_steps")
    left = room()
    match left.kind:
        case "short":
            return Compact()
        case "none":
            return Finish("failed", left.reason, left.code)
        case _:
            return Ask()
