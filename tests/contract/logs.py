"""Events to fill logs with, and what makes a log well-formed."""

from collections import Counter
from collections.abc import Iterable

from holdfast.model.entry import Entry
from holdfast.model.event import Event, ModelSaid, ToolEnded, ToolStarted, TurnEnded, TurnStarted, Usage, UserSaid
from holdfast.model.message import Text, ToolCall


def user(text: str, turn_id: str = "turn-1") -> UserSaid:
    return UserSaid(turn_id=turn_id, parts=(Text(text),))


def model(text: str, *call_ids: str, turn_id: str = "turn-1", tokens: int = 0) -> ModelSaid:
    calls = tuple(ToolCall(call_id, "terminal") for call_id in call_ids)
    return ModelSaid(turn_id=turn_id, parts=(Text(text), *calls), usage=Usage(tokens_in=tokens, tokens_out=tokens))


def ran(call_id: str, text: str, turn_id: str = "turn-1") -> list[Event]:
    """A call that started and has its result."""
    return [
        ToolStarted(turn_id=turn_id, call_id=call_id, name="terminal"),
        ToolEnded(turn_id=turn_id, call_id=call_id, outcome="ok", parts=(Text(text),)),
    ]


def whole_turn(turn_id: str = "turn-1") -> list[Event]:
    """A message, two parallel calls with their results, and a reply."""
    first, second = f"{turn_id}-a", f"{turn_id}-b"
    return [
        TurnStarted(turn_id=turn_id),
        user("Which files are there?", turn_id),
        model("Let me look.", first, second, turn_id=turn_id, tokens=7),
        ToolStarted(turn_id=turn_id, call_id=first, name="terminal"),
        *ran(second, "b.txt", turn_id),
        ToolEnded(turn_id=turn_id, call_id=first, outcome="ok", parts=(Text("a.txt"),)),
        model("Two.", turn_id=turn_id, tokens=11),
        TurnEnded(turn_id=turn_id, outcome="done"),
    ]


def is_well_formed(entries: Iterable[Entry]) -> bool:
    """Whether every provider would accept it: each call has exactly one result, after the call."""
    asked: Counter[tuple[str, str]] = Counter()
    answered: Counter[tuple[str, str]] = Counter()
    for entry in entries:
        event = entry.event
        if isinstance(event, ModelSaid):
            asked.update((event.turn_id, part.id) for part in event.parts if isinstance(part, ToolCall))
        elif isinstance(event, ToolEnded):
            answered[event.turn_id, event.call_id] += 1
            if answered[event.turn_id, event.call_id] > asked[event.turn_id, event.call_id]:
                return False
    return asked == answered
