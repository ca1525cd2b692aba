"""The description of a turn whose worker is gone."""

import pytest

from holdfast.cli.chat.interrupted_turn import describe
from holdfast.model.entry import Entry
from holdfast.model.event import Event, ModelSaid, ToolEnded, ToolStarted, TurnStarted, UserSaid
from holdfast.model.message import Text, ToolCall

TURN = "turn-1"
CALL = ToolCall("call-1", "terminal", '{"command":"make deploy"}')
OTHER = ToolCall("call-2", "read_file", '{"path":"a.txt"}')
BEGUN: list[Event] = [TurnStarted(turn_id=TURN), UserSaid(turn_id=TURN, parts=(Text("Deploy it, please"),))]
CALLED: list[Event] = [*BEGUN, ModelSaid(turn_id=TURN, parts=(CALL, OTHER))]
STARTED: list[Event] = [*CALLED, ToolStarted(turn_id=TURN, call_id="call-1", name="terminal")]
ENDED: list[Event] = [
    *STARTED,
    ToolEnded(turn_id=TURN, call_id="call-1", name="terminal", outcome="ok"),
    ToolEnded(turn_id=TURN, call_id="call-2", name="read_file", outcome="ok"),
]


@pytest.mark.parametrize(
    ("events", "was", "will"),
    [
        (BEGUN, "while the model was answering “Deploy it, please”", "asks the model again"),
        (CALLED, "before it ran `terminal make deploy`, `read_file a.txt`", "runs it"),
        (STARTED, "while it ran `terminal make deploy`", "tells the model that the outcome is unknown"),
        (ENDED, "while the model was answering “Deploy it, please”", "asks the model again"),
    ],
)
def test_the_description_says_what_ran_and_what_would_run(events: list[Event], was: str, will: str) -> None:
    left = describe([Entry(seq, 0, event) for seq, event in enumerate(events, 1)])

    assert left.was == was
    assert left.will.startswith(will)
