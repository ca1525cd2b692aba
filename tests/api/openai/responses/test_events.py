"""The events of a response follow from the log alone: a stream can resume after any sequence number."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from holdfast.api.openai.responses.document import ResponseFacts
from holdfast.api.openai.responses.events import ResponseEvents, replay_events
from holdfast.engine.streaming.bus import LiveText
from holdfast.model.entry import Entry
from holdfast.model.event import Event, ModelSaid, ReplyRestarted, RequestOptions, TurnEnded
from holdfast.model.message import Reasoning, Text, ToolCall

SESSION, TURN = "hf-" + "0" * 20, "turn-" + "1" * 20
ABOUT = ResponseFacts(
    SESSION, TURN, TURN, "play", RequestOptions(echo={"store": "true", "reasoning": '{"summary":"auto"}'})
)
words = st.text(st.sampled_from("ab \n🔑"), max_size=6) | st.text(st.sampled_from("ab "), min_size=30, max_size=70)


@st.composite
def turns(draw: st.DrawFn) -> list[tuple[list[LiveText], Event]]:
    """Replies of a turn: the live text of each, and its event in the log."""
    found: list[tuple[list[LiveText], Event]] = []
    for _ in range(draw(st.integers(0, 4))):
        text, kind = draw(words), draw(st.sampled_from(["whole", "partial", "restarted"]))
        heard = text[: draw(st.integers(0, len(text)))]
        cuts = sorted(draw(st.lists(st.integers(0, len(heard)), max_size=3)))
        pieces = [heard[a:b] for a, b in zip([0, *cuts], [*cuts, len(heard)], strict=True)]
        live = [LiveText(TURN, "text", piece, kept=True) for piece in pieces if piece]
        event: Event
        if kind == "restarted":
            event = ReplyRestarted(turn_id=TURN, text=text)
        else:
            thought = (Reasoning("hm"),) if draw(st.booleans()) else ()
            event = ModelSaid(turn_id=TURN, parts=(*thought, Text(text)), partial=kind == "partial")
        found.append((live, event))
    outcome: Any = draw(st.sampled_from(["done", "failed", "interrupted"]))
    found.append(([], TurnEnded(turn_id=TURN, outcome=outcome)))
    return found


def tell(turn: list[tuple[list[LiveText], Event]], after: int = -1, *, live: bool) -> list[dict[str, Any]]:
    narration = ResponseEvents(ABOUT, after)
    told = list(narration.begin())
    for seq, (heard, event) in enumerate(turn, 2):
        for item in [*(heard if live else []), Entry(seq, 5_000_000, event)]:
            told += narration.add(item)
    return told


@given(turn=turns())
def test_live_text_gives_the_same_events_as_the_log(turn: list[tuple[list[LiveText], Event]]) -> None:
    assert tell(turn, live=True) == tell(turn, live=False)


@given(turn=turns(), after=st.integers(-1, 60))
def test_a_stream_resumes_after_any_sequence_number(turn: list[tuple[list[LiveText], Event]], after: int) -> None:
    everything = tell(turn, live=True)

    assert tell(turn, after, live=False) == everything[after + 1 :]
    numbers = [event["sequence_number"] for event in everything]
    assert numbers == list(range(len(numbers))), "none is missing and none comes twice"


@given(text=st.text(st.sampled_from("a \n"), max_size=120))
def test_text_is_split_at_words_and_each_delta_is_short(text: str) -> None:
    said = ModelSaid(turn_id=TURN, parts=(Text(text),))

    deltas = [event["delta"] for event in tell([([], said)], live=False) if event["type"].endswith("text.delta")]

    assert "".join(deltas) == (text if text.strip() else "")
    assert all(0 < len(delta) <= 32 for delta in deltas)
    assert all(delta[-1].isspace() or len(delta) == 32 for delta in deltas[:-1])


@given(turn=turns())
def test_the_stored_response_equals_the_last_event_of_the_stream(turn: list[tuple[list[LiveText], Event]]) -> None:
    entries = [Entry(seq, 5_000_000, event) for seq, (_, event) in enumerate(turn, 2)]

    assert replay_events(ABOUT, entries).document() == tell(turn, live=True)[-1]["response"]


def test_a_restarted_reply_leaves_an_item_that_never_completes() -> None:
    turn: list[tuple[list[LiveText], Event]] = [
        ([], ReplyRestarted(turn_id=TURN, text="Wel")),
        ([], ModelSaid(turn_id=TURN, parts=(Text("Hello"),))),
        ([], TurnEnded(turn_id=TURN, outcome="done")),
    ]
    told = tell(turn, live=False)

    done = [event["item"]["content"][0]["text"] for event in told if event["type"] == "response.output_item.done"]
    assert done == ["Hello"]
    assert [item["content"][0]["text"] for item in told[-1]["response"]["output"]] == ["Hello"]


def test_a_partial_last_reply_is_an_incomplete_item() -> None:
    turn: list[tuple[list[LiveText], Event]] = [
        ([], ModelSaid(turn_id=TURN, parts=(Text("Wel"),), partial=True)),
        ([], TurnEnded(turn_id=TURN, outcome="interrupted", reason="enough")),
    ]
    response = tell(turn, live=False)[-1]["response"]

    assert (response["status"], response["output"][0]["status"]) == ("cancelled", "incomplete")
    assert response["error"] == {"code": "interrupted", "message": "enough"}


def test_client_tool_calls_are_items_after_the_text() -> None:
    call = ToolCall("c1", "weather", '{"a":1}')
    turn: list[tuple[list[LiveText], Event]] = [
        ([], ModelSaid(turn_id=TURN, parts=(Text("Let me ask."), call))),
        ([], TurnEnded(turn_id=TURN, outcome="done", awaiting=("c1",))),
    ]
    told = tell(turn, live=False)

    assert [item["type"] for item in told[-1]["response"]["output"]] == ["message", "function_call"]
    assert [event["arguments"] for event in told if event["type"].endswith("arguments.done")] == ['{"a":1}']


def test_a_reply_that_reached_its_token_limit_is_incomplete() -> None:
    turn: list[tuple[list[LiveText], Event]] = [
        ([], ModelSaid(turn_id=TURN, parts=(Text("Well"),), finish="length")),
        ([], TurnEnded(turn_id=TURN, outcome="done")),
    ]
    last = tell(turn, live=False)[-1]

    assert last["type"] == "response.incomplete"
    assert last["response"]["incomplete_details"] == {"reason": "max_output_tokens"}
