"""Messages that are added to a session become turns that are over."""

from holdfast.engine.admission.conversation_items import as_turns
from holdfast.engine.admission.history_match import ClientMessage
from holdfast.model.event import ToolEnded
from holdfast.model.message import Text, ToolCall


def test_a_failed_result_stays_failed() -> None:
    call = ToolCall(id="c1", name="weather", arguments="{}")
    result = ClientMessage(role="tool", call_id="c1", parts=(Text("no network"),), failed=True)

    outcomes = [event.outcome for event in as_turns([result], ["t1"], [call]) if isinstance(event, ToolEnded)]

    assert outcomes == ["failed"]
