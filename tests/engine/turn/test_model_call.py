"""What the calls of a turn have used."""

from holdfast.engine.turn.model_call import spent
from holdfast.model.entry import Entry
from holdfast.model.event import Event, InputDropped, ModelCalled, ModelSaid, ToolEnded, TurnEnded, TurnStarted, Usage
from holdfast.model.message import Text, ToolCall


def said(turn_id: str, tokens: int) -> ModelSaid:
    return ModelSaid(turn_id=turn_id, parts=(ToolCall("call-1", "look", "{}"),), usage=Usage(tokens_in=tokens))


def test_events_of_others_in_the_middle_of_a_turn_hide_none_of_its_usage() -> None:
    events: list[Event] = [
        TurnStarted(turn_id="turn-1"),
        said("turn-1", 1),
        TurnEnded(turn_id="turn-1", outcome="done"),
        TurnStarted(turn_id="turn-2"),
        said("turn-2", 20),
        InputDropped(turn_id="turn-3", parts=(Text("Never mind"),)),
        ToolEnded(turn_id="turn-2", call_id="call-1", name="look", outcome="ok"),
        said("turn-2", 300),
        ModelCalled(purpose="title", usage=Usage(tokens_in=4_000)),
    ]

    used = spent([Entry(seq, 1, event) for seq, event in enumerate(events, 1)], "turn-2")

    assert used.tokens_in == 320
