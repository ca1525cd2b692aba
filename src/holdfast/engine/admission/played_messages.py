"""Messages that a client has from elsewhere, as events of turns that are over."""

from collections.abc import Iterable, Sequence

from holdfast.engine.admission.history_match import ClientMessage
from holdfast.model.errors import Invalid
from holdfast.model.event import Event, ModelSaid, ToolEnded, TurnEnded, TurnStarted, UserSaid
from holdfast.model.message import Outcome, ToolCall


def as_ended_turns(given: Sequence[ClientMessage], turn_ids: Iterable[str]) -> list[Event]:
    """The messages as turns that are over, each up to a reply of the model. There is an id for each message."""
    events: list[Event] = []
    current = ""
    for one, turn_id in zip(given, turn_ids, strict=False):
        if not current:
            current = turn_id
            events.append(TurnStarted(turn_id=current))
        match one.role:
            case "user":
                events.append(UserSaid(turn_id=current, parts=one.parts, name=one.name))
            case "tool":
                events.append(as_result(one, current))
            case "assistant":
                calls = tuple(call.id for call in one.calls)
                events.append(ModelSaid(turn_id=current, parts=(*one.parts, *one.calls)))
                events.append(TurnEnded(turn_id=current, outcome="done", awaiting=calls))
                current = ""
    if current:
        events.append(TurnEnded(turn_id=current, outcome="done"))
    return events


def as_result(given: ClientMessage, turn_id: str) -> ToolEnded:
    """A result that the client sends."""
    outcome: Outcome = "failed" if given.failed else "ok"
    return ToolEnded(turn_id=turn_id, call_id=given.call_id, name=given.name, outcome=outcome, parts=given.parts)


def refuse_strange_results(given: Sequence[ClientMessage], owed: Sequence[ToolCall]) -> None:
    """Raise Invalid for a result that answers no call. `owed` are the calls that wait for one before the messages."""
    left = {call.id for call in owed}
    for one in given:
        if one.role == "assistant":
            left = {call.id for call in one.calls}
        elif one.role == "tool":
            if one.call_id not in left:
                raise Invalid(
                    f"a tool message has the tool_call_id {one.call_id!r}, and no call with that id waits for a result"
                )
            left.discard(one.call_id)
