"""What a log says about the turn in hand: which calls are open, and how to close what cannot go on."""

from collections.abc import Sequence

import msgspec

from holdfast.model.entry import Entry
from holdfast.model.event import (
    Event,
    ModelSaid,
    Terms,
    ToolEnded,
    ToolStarted,
    TurnEnded,
    TurnOutcome,
    TurnStarted,
    Usage,
    UserSaid,
)
from holdfast.model.message import Outcome, Text, ToolCall

NOTHING = Usage()
ABSENT = "The client was asked to run this call and gave no result."
NOT_RUN = "Not run: the turn ended before this call was started."
UNKNOWN = "The outcome of this call is unknown: the work stopped before a result was recorded. It may or may not have taken effect."


class Turn(msgspec.Struct, frozen=True, kw_only=True):
    """Where the newest turn stands."""

    id: str | None = None
    """The open turn; None when the session waits for input."""
    open_calls: tuple[ToolCall, ...] = ()
    """What the model asked for and has no result yet, in the order asked."""
    started: frozenset[str] = frozenset()
    """Which of those may have acted."""
    owes_reply: bool = False
    """Whether the model has something to answer."""
    steps: int = 0
    """Model calls of the open turn so far."""
    terms: Terms = Terms()
    """What the open turn was asked for under."""


def fold_turn(turn: Turn, event: Event) -> Turn:
    """Where the turn stands after one more event."""
    match event:
        case TurnStarted():
            return Turn(id=event.turn_id, terms=event.terms)
        case UserSaid():
            return msgspec.structs.replace(turn, owes_reply=True)
        case ModelSaid():
            calls = tuple(part for part in event.parts if isinstance(part, ToolCall))
            owes = event.partial and turn.owes_reply
            return msgspec.structs.replace(
                turn, open_calls=calls, started=frozenset(), owes_reply=owes, steps=turn.steps + 1
            )
        case ToolStarted():
            return msgspec.structs.replace(turn, started=turn.started | {event.call_id})
        case ToolEnded():
            left = tuple(call for call in turn.open_calls if call.id != event.call_id)
            return msgspec.structs.replace(
                turn, open_calls=left, started=turn.started - {event.call_id}, owes_reply=True
            )
        case TurnEnded():
            return Turn()
        case _:
            return turn


def turn_of(entries: Sequence[Entry]) -> Turn:
    """Where the newest turn stands. What came before it does not matter, and is not looked at."""
    start = len(entries)
    while start > 0 and not isinstance(entries[start - 1].event, TurnStarted):
        start -= 1
    turn = Turn()
    for entry in entries[max(start - 1, 0) :]:
        turn = fold_turn(turn, entry.event)
    return turn


def loose_ends(entries: Sequence[Entry]) -> list[Event]:
    """The events that close an open turn which nobody will go on with, so that the log stays well-formed."""
    return close(turn_of(entries), outcome="cancelled", reason="the session was left in mid-turn")


def close(turn: Turn, *, outcome: TurnOutcome, reason: str, code: str = "", usage: Usage = NOTHING) -> list[Event]:
    """The events that end the turn here and now: each open call gets the one result it is owed."""
    if turn.id is None:
        return []
    results: list[Event] = [close_call(turn, call) for call in turn.open_calls]
    return [*results, TurnEnded(turn_id=turn.id, outcome=outcome, reason=reason, code=code, usage=usage)]


def half_said(turn_id: str, text: str) -> ModelSaid:
    """Text of a reply that was cut off, as it stands in the log."""
    return ModelSaid(turn_id=turn_id, parts=(Text(text),), finish="cut", partial=True)


def close_call(turn: Turn, call: ToolCall) -> ToolEnded:
    """The result of a call that will not be run, or whose outcome nobody will ever know."""
    assert turn.id is not None, "calls belong to a turn"
    outcome: Outcome = "unknown" if call.id in turn.started else "failed"
    text = UNKNOWN if call.id in turn.started else NOT_RUN
    return ToolEnded(turn_id=turn.id, call_id=call.id, name=call.name, outcome=outcome, parts=(Text(text),))


def absent(turn_id: str, call: ToolCall) -> ToolEnded:
    """The result of a call that the client was to run, when it goes on without giving one."""
    return ToolEnded(turn_id=turn_id, call_id=call.id, name=call.name, outcome="unknown", parts=(Text(ABSENT),))
