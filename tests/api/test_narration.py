"""The events of a response follow from the log alone: however its words came, a stream can be read on from any number."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from holdfast.api.narration import Narration, folded
from holdfast.api.response_document import About
from holdfast.engine.bus import Live
from holdfast.model.entry import Entry
from holdfast.model.event import Event, ModelSaid, ReplyRestarted, Terms, TurnEnded
from holdfast.model.message import Reasoning, Text, ToolCall

SESSION, TURN = "hf-" + "0" * 20, "turn-" + "1" * 20
ABOUT = About(SESSION, TURN, TURN, "play", Terms(echo={"store": "true", "reasoning": '{"summary":"auto"}'}))
words = st.text(st.sampled_from("ab \n🔑"), max_size=6)


@st.composite
def turns(draw: st.DrawFn) -> list[tuple[list[Live], Event]]:
    """Replies of a turn: what was heard of each as it was made, and what then stood in the log."""
    found: list[tuple[list[Live], Event]] = []
    for _ in range(draw(st.integers(0, 4))):
        text, kind = draw(words), draw(st.sampled_from(["whole", "partial", "restarted"]))
        heard = text[: draw(st.integers(0, len(text)))]
        cuts = sorted(draw(st.lists(st.integers(0, len(heard)), max_size=3)))
        pieces = [heard[a:b] for a, b in zip([0, *cuts], [*cuts, len(heard)], strict=True)]
        live = [Live(TURN, "text", piece, kept=True) for piece in pieces if piece]
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


def tell(turn: list[tuple[list[Live], Event]], after: int = -1, *, live: bool) -> list[dict[str, Any]]:
    narration = Narration(ABOUT, after)
    told = list(narration.begin())
    for seq, (heard, event) in enumerate(turn, 2):
        for item in [*(heard if live else []), Entry(seq, 5_000_000, event)]:
            told += narration.add(item)
    return told


def pieces(told: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    """What is told, with the words letter by letter, each with its number."""
    found: list[tuple[Any, ...]] = []
    for event in told:
        number = event["sequence_number"]
        if event["type"].endswith("output_text.delta"):
            letters = event["delta"]
            found += [(number - len(letters) + n, event["item_id"], letter) for n, letter in enumerate(letters, 1)]
        else:
            found.append((number, event["type"], str(event)))
    return found


@given(turn=turns())
def test_words_that_came_live_are_told_as_those_of_the_log(turn: list[tuple[list[Live], Event]]) -> None:
    assert pieces(tell(turn, live=True)) == pieces(tell(turn, live=False))


@given(turn=turns(), after=st.integers(-1, 60))
def test_a_stream_goes_on_behind_any_number(turn: list[tuple[list[Live], Event]], after: int) -> None:
    everything = pieces(tell(turn, live=True))

    assert pieces(tell(turn, after, live=False)) == [piece for piece in everything if piece[0] > after]
    numbers = [piece[0] for piece in everything]
    assert numbers == list(range(len(numbers))), "none is missing and none comes twice"


@given(turn=turns())
def test_what_is_kept_is_what_the_stream_ends_with(turn: list[tuple[list[Live], Event]]) -> None:
    entries = [Entry(seq, 5_000_000, event) for seq, (_, event) in enumerate(turn, 2)]

    assert folded(ABOUT, entries).document() == tell(turn, live=True)[-1]["response"]


def test_a_reply_that_was_begun_anew_is_an_item_that_never_gets_done() -> None:
    turn: list[tuple[list[Live], Event]] = [
        ([], ReplyRestarted(turn_id=TURN, text="Wel")),
        ([], ModelSaid(turn_id=TURN, parts=(Text("Hello"),))),
        ([], TurnEnded(turn_id=TURN, outcome="done")),
    ]
    told = tell(turn, live=False)

    done = [event["item"]["content"][0]["text"] for event in told if event["type"] == "response.output_item.done"]
    assert done == ["Hello"]
    assert [item["content"][0]["text"] for item in told[-1]["response"]["output"]] == ["Hello"]


def test_half_a_reply_that_was_the_last_word_is_an_item_that_is_not_complete() -> None:
    turn: list[tuple[list[Live], Event]] = [
        ([], ModelSaid(turn_id=TURN, parts=(Text("Wel"),), partial=True)),
        ([], TurnEnded(turn_id=TURN, outcome="interrupted", reason="enough")),
    ]
    response = tell(turn, live=False)[-1]["response"]

    assert (response["status"], response["output"][0]["status"]) == ("cancelled", "incomplete")
    assert response["error"] == {"code": "interrupted", "message": "enough"}


def test_calls_for_the_client_are_items_behind_the_words() -> None:
    call = ToolCall("c1", "weather", '{"a":1}')
    turn: list[tuple[list[Live], Event]] = [
        ([], ModelSaid(turn_id=TURN, parts=(Text("Let me ask."), call))),
        ([], TurnEnded(turn_id=TURN, outcome="done", awaiting=("c1",))),
    ]
    told = tell(turn, live=False)

    assert [item["type"] for item in told[-1]["response"]["output"]] == ["message", "function_call"]
    assert [event["arguments"] for event in told if event["type"].endswith("arguments.done")] == ['{"a":1}']


def test_a_reply_that_ran_into_its_limit_is_incomplete() -> None:
    turn: list[tuple[list[Live], Event]] = [
        ([], ModelSaid(turn_id=TURN, parts=(Text("Well"),), finish="length")),
        ([], TurnEnded(turn_id=TURN, outcome="done")),
    ]
    last = tell(turn, live=False)[-1]

    assert last["type"] == "response.incomplete"
    assert last["response"]["incomplete_details"] == {"reason": "max_output_tokens"}
