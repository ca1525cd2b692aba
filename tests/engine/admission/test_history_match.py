"""The prefixes of a client's messages are the same with and without what is known of earlier requests."""

from hypothesis import example, given
from hypothesis import strategies as st

from holdfast.engine.admission.history_match import ClientHistory, ClientMessage, boundaries
from holdfast.model.message import Text, ToolCall


def user(text: str) -> ClientMessage:
    return ClientMessage(role="user", parts=(Text(text),))


def assistant(text: str) -> ClientMessage:
    return ClientMessage(role="assistant", parts=(Text(text),) if text else ())


CALLING = ClientMessage(role="assistant", calls=(ToolCall("c1", "look"),))
RESULT = ClientMessage(role="tool", parts=(Text("seen"),), call_id="c1")
EMPTY = assistant("")
conversations = st.lists(
    st.one_of(
        st.sampled_from(["a", "b"]).map(user),
        st.sampled_from(["", "x"]).map(assistant),
        st.sampled_from([CALLING, RESULT]),
    ),
    max_size=8,
).map(tuple)


@example((EMPTY, user("a"), assistant("x"), user("b")), 4)
@example((EMPTY, EMPTY, user("a")), 3)
@given(conversations, st.integers(0, 8))
def test_a_history_has_the_same_prefixes_whether_or_not_its_beginning_is_known(
    messages: tuple[ClientMessage, ...], length: int
) -> None:
    more = (*messages, assistant("y"), user("c"))
    known = ClientHistory.of(messages[:length])

    assert boundaries(more, known) == boundaries(more)


def test_empty_replies_before_the_first_message_are_counted() -> None:
    found = boundaries((EMPTY, user("a"), assistant("x"), user("b")))

    assert [prefix.count for prefix in found] == [3, 2, 0]
    assert found[:2] != boundaries((user("a"), assistant("x"), user("b")))[:2]
    assert [prefix.hash for prefix in found] == [
        prefix.hash for prefix in boundaries((user("a"), assistant("x"), user("b")))
    ]
