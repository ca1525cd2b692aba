"""What a log says about the turn in hand: which calls are open, and how to close what cannot go on."""

from collections.abc import Iterable

import msgspec

from holdfast.model.event import (
    Ended,
    Entry,
    Event,
    ModelSaid,
    ToolEnded,
    ToolStarted,
    TurnEnded,
    TurnStarted,
    UserSaid,
)
from holdfast.model.message import Text, ToolCall

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


def fold_turn(turn: Turn, event: Event) -> Turn:
    """Where the turn stands after one more event."""
    match event:
        case TurnStarted():
            return Turn(id=event.turn_id)
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
        case TurnEnded() | Ended():
            return Turn()
        case _:
            return turn


def turn_of(entries: Iterable[Entry]) -> Turn:
    turn = Turn()
    for entry in entries:
        turn = fold_turn(turn, entry.event)
    return turn


def loose_ends(entries: Iterable[Entry]) -> list[Event]:
    """The events that close an open turn which nobody will go on with, so that the log stays well-formed."""
    turn = turn_of(entries)
    if turn.id is None:
        return []
    closed: list[Event] = [close_unknown(turn.id, call) for call in turn.open_calls]
    return [*closed, TurnEnded(turn_id=turn.id, outcome="cancelled", reason="the session was left in mid-turn")]


def close_unknown(turn_id: str, call: ToolCall) -> ToolEnded:
    """The result of a call that nobody will ever know the outcome of."""
    return ToolEnded(turn_id=turn_id, call_id=call.id, name=call.name, outcome="unknown", parts=(Text(UNKNOWN),))
