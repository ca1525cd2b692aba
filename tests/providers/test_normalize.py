import re
from typing import Any

from holdfast.model.message import Image, Message, Reasoning, Text, ToolResult, text_of
from holdfast.providers.normalize import (
    CONTINUE,
    EMPTY,
    NO_OUTPUT,
    NO_RESULT,
    START_MISSING,
    CallIds,
    CallWithResult,
    ModelBlock,
    UserBlock,
    normalize,
    result_parts,
)
from tests.providers.messages import called, message, model, result, user

IDS = re.compile("[a-z0-9_]{1,40}")


def shape(*messages: Message) -> list[Any]:
    """Each block in short: the user's text, or the answer and the results of its calls."""
    blocks: list[Any] = []
    for block in normalize(messages, CallIds(IDS)):
        texts = [part.text for part in block.parts if isinstance(part, Text)]
        if isinstance(block, UserBlock):
            blocks.append(texts)
        else:
            blocks.append((texts, {call.id: text_of(result_parts(call.result)) for call in block.calls}))
    return blocks


def calls(messages: tuple[Message, ...], place: int) -> tuple[CallWithResult, ...]:
    block = normalize(messages, CallIds(IDS))[place]
    assert isinstance(block, ModelBlock)
    return block.calls


def test_a_plain_conversation_is_unchanged() -> None:
    assert shape(user("a"), model("b"), user("c")) == [["a"], (["b"], {}), ["c"]]


def test_consecutive_user_messages_are_merged() -> None:
    assert shape(user("a"), user("b")) == [["a", "b"]]


def test_no_messages_become_one_empty_message() -> None:
    assert shape() == [[EMPTY]]
    assert shape(user("  ")) == [[EMPTY]]
    assert shape(user()) == [[EMPTY]]


def test_a_conversation_that_begins_with_the_model_gets_a_remark() -> None:
    assert shape(model("b"), user("c")) == [[START_MISSING], (["b"], {}), ["c"]]


def test_an_answer_at_the_end_is_followed_by_a_request_to_continue() -> None:
    assert shape(user("a"), model("half", partial=True)) == [["a"], (["half"], {}), [CONTINUE]]


def test_a_request_to_continue_stays_in_later_requests() -> None:
    first = shape(user("a"), model("half", partial=True))
    later = shape(user("a"), model("half", partial=True), model("whole"), user("b"))

    assert later[: len(first)] == first


def test_an_empty_answer_is_left_out() -> None:
    assert shape(user("a"), model(" "), model(Reasoning("hm")), user("b")) == [["a", "b"]]


def test_each_call_has_its_result() -> None:
    said = shape(user("a"), model(called("c1"), called("c2")), result("c2", "two"), result("c1", "one"))

    assert said == [["a"], ([], {"c1": "one", "c2": "two"})]


def test_a_result_after_further_messages_is_moved_before_them() -> None:
    said = shape(user("a"), model(called("c1")), user("and quickly"), result("c1", "one"))

    assert said == [["a"], ([], {"c1": "one"}), ["and quickly"]]


def test_a_call_without_a_result_has_an_unknown_outcome() -> None:
    (call,) = calls((user("a"), model(called("c1"))), 1)

    assert result_parts(call.result) == (Text("[outcome unknown]"), Text(NO_RESULT))


def test_a_result_without_a_call_is_left_out() -> None:
    assert shape(result("c9"), user("a"), result("c9")) == [["a"]]


def test_a_second_result_of_a_call_is_left_out() -> None:
    assert shape(user("a"), model(called()), result(text="one"), result(text="two")) == [["a"], ([], {"c1": "one"})]


def test_an_id_that_is_reused_later_means_the_later_call() -> None:
    said = shape(user("a"), model(called()), result(text="one"), model(called()), result(text="two"))

    assert [list(block[1].values()) for block in said[1:]] == [["one"], ["two"]]
    assert len({id for block in said[1:] for id in block[1]}) == 2


def test_two_calls_with_one_id_get_their_results_in_order() -> None:
    said = shape(user("a"), model(called(), called()), result(text="one"), result(text="two"))

    assert list(said[1][1].values()) == ["one", "two"]


def test_invalid_ids_are_replaced_always_in_the_same_way() -> None:
    messages = (user("a"), model(called("functions.terminal:0"), called(""), called("\ud800")))
    again = calls((*messages, user("b")), 1)

    ids = [call.id for call in calls(messages, 1)]

    assert len(set(ids)) == 3
    assert all(IDS.fullmatch(id) for id in ids)
    assert [call.id for call in again] == ids
    assert again[0].source == "functions.terminal:0"


def test_results_in_a_user_message_are_results() -> None:
    said = shape(user("a"), model(called()), user(ToolResult("c1", (Text("one"),))))

    assert said == [["a"], ([], {"c1": "one"})]


def test_a_call_in_a_user_message_is_left_out() -> None:
    assert shape(user("a", called()), result()) == [["a"]]


def test_images_keep_their_position() -> None:
    picture = Image("https://example.org/a.png")

    assert normalize((user("a", picture, "b"),), CallIds(IDS)) == [UserBlock((Text("a"), picture, Text("b")))]


def test_a_result_without_output_says_so() -> None:
    assert result_parts(ToolResult("c1")) == (Text(NO_OUTPUT),)
    assert result_parts(ToolResult("c1", (Text("\n"),), "failed")) == (Text("[failed]"), Text(NO_OUTPUT))


def test_text_of_a_tool_without_a_result_is_left_out() -> None:
    assert shape(user("a"), message("tool", "stray")) == [["a"]]
