"""What a client was shown is folded from the log and from its own messages into the same hash."""

from hypothesis import given
from hypothesis import strategies as st

from holdfast.model.entry import Entry
from holdfast.model.event import Event, ModelSaid, ToolEnded, ToolStarted, TurnEnded, TurnStarted, UserSaid
from holdfast.model.message import Image, Reasoning, Text, ToolCall
from holdfast.model.shown import NOTHING, Item, Shown, grow, together

CALL = ToolCall("c1", "weather", '{"place": "Bonn", "when": 1}')


def fold(*events: Event) -> Shown:
    shown = Shown()
    for seq, event in enumerate(events, 1):
        shown.add(Entry(seq, 0, event))
    return shown


def hashed(*items: Item) -> str:
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


def test_a_turn_is_its_words_and_its_reply() -> None:
    assert fold(*turn(said("a"), answered("b"))).hash == hashed(Item("user", "a"), Item("assistant", "b"))


def test_what_the_servers_tools_did_is_not_shown() -> None:
    own = ToolCall("s1", "terminal")
    events = [
        said("a"),
        answered("Let me look.", own),
        ToolStarted(turn_id="t", call_id="s1", name="terminal"),
        ended("s1", "x"),
        answered("Done."),
    ]

    assert fold(*turn(*events)).hash == hashed(Item("user", "a"), Item("assistant", "Let me look.\n\nDone."))


def test_calls_for_the_client_are_shown_and_so_are_its_results() -> None:
    first = turn(said("a"), answered("", CALL), awaiting=("c1",))
    second = turn(ended("c1", "Rain."), answered("It rains."))

    assert fold(*first, *second).hash == hashed(
        Item("user", "a"),
        Item("assistant", "", (ToolCall("c1", "weather", '{"when":1,"place":"Bonn"}'),)),
        Item("tool", "Rain.", call_id="c1"),
        Item("assistant", "It rains."),
    )


def test_a_result_that_the_client_did_not_give_is_not_shown() -> None:
    first = turn(said("a"), answered("", CALL), awaiting=("c1",))
    second = turn(ended("c1", "nothing came", "unknown"), said("b"), answered("c"))

    assert fold(*first, *second).hash == hashed(
        Item("user", "a"), Item("assistant", "", (CALL,)), Item("user", "b"), Item("assistant", "c")
    )


def test_a_reply_that_was_cut_off_is_not_shown() -> None:
    shown = fold(*turn(said("a"), answered("half", partial=True), answered("whole")))

    assert shown.hash == hashed(Item("user", "a"), Item("assistant", "whole"))


def test_pictures_are_left_out_and_white_space_around_a_text() -> None:
    words = UserSaid(turn_id="t", parts=(Text(" a\r\nb "), Image("data:,")))

    assert fold(*turn(words, answered("c\n"))).hash == hashed(Item("user", "a\nb"), Item("assistant", "c"))


def test_answers_in_several_pieces_and_empty_ones_make_no_difference() -> None:
    whole = hashed(Item("user", "a"), Item("assistant", "b\n\nc"))

    assert hashed(Item("user", "a"), Item("assistant", "b"), Item("assistant", " "), Item("assistant", "c")) == whole


def test_words_of_a_turn_that_is_open_are_what_comes_after_the_last_point() -> None:
    shown = fold(*turn(said("a"), answered("b")), TurnStarted(turn_id="u"), said("c"))

    assert [point.seq for point in shown.points] == [4]
    assert shown.items == [Item("user", "c")]


items = st.builds(Item, st.sampled_from(["user", "assistant", "tool"]), st.text(max_size=3))


@given(one=st.lists(items, max_size=4), other=st.lists(items, max_size=4))
def test_only_the_same_messages_have_the_same_hash(one: list[Item], other: list[Item]) -> None:
    def spoken(found: list[Item]) -> list[tuple[str, str]]:
        return [(item.role, item.text.strip().replace("\r\n", "\n")) for item in together(found)]

    assert (hashed(*one) == hashed(*other)) == (spoken(one) == spoken(other))
