"""A request whose first messages are known is parsed as any other one, with work that depends only on the new messages."""

import json
from sys import getsizeof
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holdfast.api.errors import ApiError
from holdfast.api.openai import chat_request, known_messages
from holdfast.api.openai.chat_request import ParsedRequest, request_digest
from holdfast.api.openai.known_messages import MessageMemo, RequestDigest
from holdfast.engine.admission import history_match
from holdfast.engine.admission.history_match import ClientHistory
from holdfast.model.message import Text

Json = dict[str, Any]
values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**40), 2**40) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
names = st.sampled_from(["a", "max_tokens", "messagesz", "metadata", "model", "stream", "tools", "Z", "é"])
texts = st.sampled_from(["", " ", "hello", 'quo"te', "[", "]", "}", "ü\n", "\\", "long " * 50])
messages = st.one_of(
    st.builds(lambda text: {"role": "user", "content": text}, texts),
    st.builds(lambda text: {"role": "assistant", "content": text}, texts),
    st.builds(lambda text: {"role": "system", "content": text}, texts),
    st.builds(
        lambda id: {
            "role": "assistant",
            "tool_calls": [{"id": id, "type": "function", "function": {"name": "f", "arguments": '{"b": 1, "a": 2}'}}],
        },
        st.sampled_from(["c1", "c2"]),
    ),
    st.builds(lambda id: {"role": "tool", "tool_call_id": id, "content": "ok"}, st.sampled_from(["c1", "c2"])),
    st.just({"role": "user", "content": [{"type": "text", "text": "part"}]}),
    st.just({"role": "user"}),
    st.just({"role": "nobody", "content": "x"}),
)


def parse(body: bytes, memo: MessageMemo | None) -> ParsedRequest | tuple[object, ...]:
    try:
        asked = chat_request.parse(body, memo)
    except ApiError as e:
        return e.status, e.body()
    return msgspec.structs.replace(asked, history=ClientHistory.of(asked.messages)), asked.history  # type: ignore[return-value]


@pytest.fixture(autouse=True)
def every_body_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat_request, "MIN_BYTES", 0)


@pytest.mark.slow
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_requests_of_a_growing_history_are_parsed_as_without_the_memo(data: st.DataObject) -> None:
    memo = MessageMemo()
    said: list[Json] = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"}]
    more: Json = {"model": "m"}
    for _ in range(data.draw(st.integers(2, 6))):
        match data.draw(st.sampled_from(["grow", "grow", "grow", "cut", "edit", "field", "same"])):
            case "grow":
                said = said + data.draw(st.lists(messages, max_size=4))
            case "cut":
                said = said[: data.draw(st.integers(0, len(said)))]
            case "edit" if said:
                index = data.draw(st.integers(0, len(said) - 1))
                said = [*said[:index], data.draw(messages), *said[index + 1 :]]
            case "field":
                more = data.draw(
                    st.sampled_from([{"model": "m", "max_tokens": 5}, {"model": "m", "user": "u"}, {"model": 1}])
                )
        separators = data.draw(st.sampled_from([(",", ":"), (", ", ": "), (" ,\n", " : ")]))
        body = json.dumps({**more, "messages": said}, separators=separators).encode()
        body = body.replace(b"]", b" ]") if data.draw(st.booleans()) else body

        with_memo, plain = parse(body, memo), parse(body, None)

        if isinstance(with_memo, tuple) and isinstance(with_memo[0], ParsedRequest):
            asked, history = with_memo
            assert isinstance(plain, tuple)
            assert asked == plain[0]
            assert history == asked.history
        else:
            assert with_memo == plain


@given(
    data=st.dictionaries(names, values, max_size=5),
    first=st.lists(values, max_size=3),
    second=st.lists(values, max_size=3),
)
def test_a_digest_that_is_extended_is_that_of_the_whole_request(
    data: Json, first: list[object], second: list[object]
) -> None:
    whole = {**data, "messages": first + second}

    assert RequestDigest.begin(data).extend(first).extend(second).finish(data) == request_digest(whole)


def history(count: int) -> list[Json]:
    roles = ("user", "assistant")
    return [{"role": roles[n % 2], "content": f"message {n}"} for n in range(count)]


def body(said: list[Json]) -> bytes:
    return json.dumps({"model": "m", "messages": said}).encode()


@pytest.mark.parametrize("count", [40, 4_000])
def test_only_new_messages_are_parsed_and_hashed(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    memo, said = MessageMemo(), [*history(count), {"role": "user", "content": "one"}]
    chat_request.parse(body(said), memo)
    parsed: list[object] = []
    hashed: list[object] = []
    original, grow = chat_request._given, history_match.grow
    monkeypatch.setattr(chat_request, "_given", lambda *args: (parsed.append(args), original(*args))[1])
    monkeypatch.setattr(history_match, "grow", lambda *args: (hashed.append(args), grow(*args))[1])

    said += [{"role": "assistant", "content": "answer"}, {"role": "user", "content": "two"}]
    asked = chat_request.parse(body(said), memo)

    assert len(asked.messages) == count + 3
    assert len(parsed) == 2
    assert len(hashed) == 3, "the last message of the user before, and the new ones"


def test_the_memory_is_limited_and_the_newest_histories_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known_messages, "MAX_BYTES", 100_000)
    memo = MessageMemo()
    for number in range(50):
        chat_request.parse(body([{"role": "user", "content": f"{number}"}, *history(20)[1:]]), memo)

    kept = memo._kept.values()

    assert 1 < len(kept) < 50
    assert memo._bytes == sum(known.memory_bytes for known in kept) <= 100_000
    assert b'"content": "49"' in [*kept][-1].text


def test_the_memory_of_text_outside_of_ascii_is_counted() -> None:
    memo, said = MessageMemo(), history(2)
    for number in range(2):
        said += [
            {"role": "user", "content": f"{number}\U0001f9ad" + "x" * 50_000},
            {"role": "assistant", "content": "é"},
        ]
        chat_request.parse(body(said), memo)
    [known] = memo._kept.values()
    texts = [part.text for one in known.history.given for part in one.parts if isinstance(part, Text)]

    assert sum(map(getsizeof, texts)) > 400_000
    assert known.memory_bytes >= len(known.text) + sum(map(getsizeof, texts))


def test_a_request_with_only_new_messages_is_not_remembered() -> None:
    memo = MessageMemo()

    chat_request.parse(body([{"role": "user", "content": "word " * 5_000}]), memo)

    assert not memo._kept
