"""The log and the client's own messages give the same transcript hash."""

from hypothesis import given
from hypothesis import strategies as st

from holdfast.model.client_transcript import NOTHING, ClientTranscript, TranscriptItem, grow, together
from holdfast.model.entry import Entry
from holdfast.model.event import Event, ModelSaid, ToolEnded, ToolStarted, TurnEnded, TurnStarted, UserSaid
from holdfast.model.message import Image, Reasoning, Text, ToolCall

CALL = ToolCall("c1", "weather", '{"place": "Bonn", "when": 1}')


def fold(*events: Event) -> ClientTranscript:
    shown = ClientTranscript()
    for seq, event in enumerate(events, 1):
        shown.add(Entry(seq, 0, event))
    return shown


def hashed(*items: TranscriptItem) -> str:
    hash_ = NOTHING
    for item in together(items):
        hash_ = grow(hash_, item)
    return hash_


def turn(*events: Event, awaiting: tuple[str, ...] = ()) -> list[Event]:
    return [TurnStarted(turn_id="t"), *events, TurnEnded(turn_id="t", outcome="done", awaiting=awaiting)]


def said(text: str) -> UserSaid:
    return UserSaid(turn_id="t", parts=(Text(text),))


def answered(text: str, *calls: ToolCall, partial: bool = False) -> ModelSaid:
    return ModelSaid(turn_id="t", parts=(Reasoning("hm"), Text(text), *calls), partial=partial)


def ended(call_id: str, text: str, outcome: str = "ok") -> ToolEnded:
    return ToolEnded(turn_id="t", call_id=call_id, outcome=outcome, parts=(Text(text),))  # type: ignore[arg-type]


def test_a_turn_is_its_input_and_its_reply() -> None:
    assert fold(*turn(said("a"), answered("b"))).hash == hashed(
        TranscriptItem("user", "a"), TranscriptItem("assistant", "b")
    )


def test_calls_of_the_servers_tools_are_not_included() -> None:
    own = ToolCall("s1", "terminal")
    events = [
        said("a"),
        answered("Let me look.", own),
        ToolStarted(turn_id="t", call_id="s1", name="terminal"),
        ended("s1", "x"),
        answered("Done."),
    ]

    assert fold(*turn(*events)).hash == hashed(
        TranscriptItem("user", "a"), TranscriptItem("assistant", "Let me look.\n\nDone.")
    )


def test_calls_for_the_client_and_their_results_are_included() -> None:
    first = turn(said("a"), answered("", CALL), awaiting=("c1",))
    second = turn(ended("c1", "Rain."), answered("It rains."))

    assert fold(*first, *second).hash == hashed(
        TranscriptItem("user", "a"),
        TranscriptItem("assistant", "", (ToolCall("c1", "weather", '{"when":1,"place":"Bonn"}'),)),
        TranscriptItem("tool", "Rain.", call_id="c1"),
        TranscriptItem("assistant", "It rains."),
    )


def test_a_result_that_the_client_did_not_send_is_not_included() -> None:
    first = turn(said("a"), answered("", CALL), awaiting=("c1",))
    second = turn(ended("c1", "nothing came", "unknown"), said("b"), answered("c"))

    assert fold(*first, *second).hash == hashed(
        TranscriptItem("user", "a"),
        TranscriptItem("assistant", "", (CALL,)),
        TranscriptItem("user", "b"),
        TranscriptItem("assistant", "c"),
    )


def test_a_partial_reply_is_not_included() -> None:
    shown = fold(*turn(said("a"), answered("half", partial=True), answered("whole")))

    assert shown.hash == hashed(TranscriptItem("user", "a"), TranscriptItem("assistant", "whole"))


def test_images_and_surrounding_white_space_are_left_out() -> None:
    words = UserSaid(turn_id="t", parts=(Text(" a\r\nb "), Image("data:,")))

    assert fold(*turn(words, answered("c\n"))).hash == hashed(
        TranscriptItem("user", "a\nb"), TranscriptItem("assistant", "c")
    )


def test_replies_in_several_parts_and_empty_ones_make_no_difference() -> None:
    whole = hashed(TranscriptItem("user", "a"), TranscriptItem("assistant", "b\n\nc"))

    assert (
        hashed(
            TranscriptItem("user", "a"),
            TranscriptItem("assistant", "b"),
            TranscriptItem("assistant", " "),
            TranscriptItem("assistant", "c"),
        )
        == whole
    )


def test_input_of_an_open_turn_comes_after_the_last_point() -> None:
    shown = fold(*turn(said("a"), answered("b")), TurnStarted(turn_id="u"), said("c"))

    assert [point.seq for point in shown.points] == [4]
    assert shown.items == [TranscriptItem("user", "c")]


items = st.builds(TranscriptItem, st.sampled_from(["user", "assistant", "tool"]), st.text(max_size=3))


@given(one=st.lists(items, max_size=4), other=st.lists(items, max_size=4))
def test_only_the_same_messages_have_the_same_hash(one: list[TranscriptItem], other: list[TranscriptItem]) -> None:
    def spoken(found: list[TranscriptItem]) -> list[tuple[str, str]]:
        return [(item.role, item.text.strip().replace("\r\n", "\n")) for item in together(found)]

    assert (hashed(*one) == hashed(*other)) == (spoken(one) == spoken(other))
