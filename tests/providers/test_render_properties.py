"""For any log, each vendor gets a request that it accepts."""

import base64
import itertools
import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holdfast.model.message import Content, File, Image, Message, Part, Reasoning, Text, ToolCall, ToolResult, text_of
from holdfast.model.provider import ModelRequest, ToolSpec
from tests.fakes import anthropic_server, openai_server
from tests.providers.messages import anthropic_body, openai_body

Render = Callable[[ModelRequest], dict[str, Any]]
VENDORS = {
    "openai": (openai_body, openai_server.complaint),
    "anthropic": (anthropic_body, anthropic_server.complaint),
}
unhurried = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
each_vendor = pytest.mark.parametrize(("render", "complaint"), VENDORS.values(), ids=VENDORS)

# Few different ids, so that calls and results match, mismatch and repeat.
ids = st.sampled_from(["", "c1", "c2", "functions.x:0", "\ud800", "x" * 80]) | st.text(max_size=5)
texts = st.sampled_from(["", " \n", "\0", "lone \udc80", "words", "😀"]) | st.text(max_size=20)
PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n").decode()
PDF = base64.b64encode(b"%PDF-1.7").decode()
urls = st.sampled_from(
    [
        f"data:image/png;base64,{PNG}",
        f"data:application/pdf;base64,{PDF}",
        "data:image/png;base64,garbage!",
        "data:text/plain,words",
        "https://example.org/a.png",
        "http://",
        "file:a.png",
    ]
) | st.text(max_size=10)
arguments = st.sampled_from(["", "{}", '{"a": 1}', '{"a', "[]", '{"a": NaN}', r'{"a": "\ud800"}']) | st.text(max_size=8)

contents: st.SearchStrategy[Content] = st.one_of(
    st.builds(Text, texts), st.builds(Image, urls, texts, texts), st.builds(File, urls, texts, texts)
)
opaque = st.dictionaries(
    st.sampled_from(["server", "prefix", "signature", "data", "field", "reasoning_details", "extra_content"]),
    st.sampled_from(["api.openai.com", "api.anthropic.com", "reasoning", "[{}]", "{}", '{"c1": {"a": 1}}']) | texts,
)
parts: st.SearchStrategy[Part] = st.one_of(
    contents,
    st.builds(Reasoning, texts, st.sampled_from(["openai", "anthropic", ""]), opaque),
    st.builds(ToolCall, ids, texts, arguments),
    st.builds(
        ToolResult,
        ids,
        st.lists(contents, max_size=3).map(tuple),
        st.sampled_from(["ok", "failed", "denied", "unknown"]),
    ),
)
messages = st.builds(
    Message,
    seq=st.just(1),
    role=st.sampled_from(["user", "assistant", "tool"]),
    parts=st.lists(parts, max_size=4).map(tuple),
    at=st.just(0),
    partial=st.booleans(),
)
schemas = st.sampled_from([{}, {"type": "object"}, {"anyOf": [{}]}, {"type": "array", "properties": {"\ud800": {}}}])
tools = st.builds(ToolSpec, texts, texts, schemas)
requests = st.builds(
    ModelRequest,
    model=st.just("m"),
    system=texts,
    messages=st.lists(messages, max_size=8).map(tuple),
    tools=st.lists(tools, max_size=3).map(tuple),
    max_tokens=st.none() | st.integers(-1, 100),
)


@pytest.mark.slow
@each_vendor
@unhurried
@given(request=requests)
def test_any_messages_make_a_request_that_the_vendor_accepts(
    render: Render, complaint: Callable[[Any], str | None], request: ModelRequest
) -> None:
    body = render(request)
    sent = json.dumps(body, ensure_ascii=False, allow_nan=False).encode("utf-8")

    assert complaint(json.loads(sent)) is None
    assert b"\\u0000" not in sent


@pytest.mark.slow
@each_vendor
@unhurried
@given(request=requests)
def test_the_same_request_is_always_rendered_the_same_way(
    render: Render, complaint: object, request: ModelRequest
) -> None:
    assert json.dumps(render(request)) == json.dumps(render(request))


words = st.from_regex(r"[a-z]{3,8}", fullmatch=True)


@st.composite
def conversations(draw: st.DrawFn) -> tuple[list[Message], list[int]]:
    """A well-formed log as the engine writes it, and the positions at which the model was called."""
    said: list[Message] = []
    asked: list[int] = []

    def add(role: str, *held: Part, partial: bool = False) -> None:
        said.append(Message(len(said) + 1, role, held, 0, partial))  # type: ignore[arg-type]  # roles are literals here

    for turn in range(draw(st.integers(1, 4))):
        add("user", Text(draw(words)))
        for step in range(draw(st.integers(0, 2))):
            asked.append(len(said))
            made = [ToolCall(f"call_{turn}_{step}_{n}", "terminal") for n in range(draw(st.integers(1, 2)))]
            add("assistant", Text(draw(texts)), *made)
            if draw(st.booleans()):
                add("user", Text(draw(words)))
            for call in draw(st.permutations(made)):
                add("tool", ToolResult(call.id, (Text(draw(words)),)))
        if draw(st.booleans()):
            asked.append(len(said))
            add("assistant", Text(draw(words)), partial=True)
        asked.append(len(said))
        add("assistant", Text(draw(words)))
    return said, asked


def unmarked(body: dict[str, Any]) -> list[Any]:
    """The messages without the breakpoints of the cache, which move on with the conversation."""
    return list(json.loads(json.dumps(body["messages"]).replace(', "cache_control": {"type": "ephemeral"}', "")))


@pytest.mark.slow
@each_vendor
@unhurried
@given(log=conversations())
def test_an_earlier_request_is_a_prefix_of_a_later_one(
    render: Render, complaint: object, log: tuple[list[Message], list[int]]
) -> None:
    said, asked = log
    sent = [unmarked(render(ModelRequest(model="m", system="s", messages=tuple(said[:place])))) for place in asked]

    for earlier, later in itertools.pairwise(sent):
        assert later[: len(earlier)] == earlier


@pytest.mark.slow
@each_vendor
@unhurried
@given(log=conversations())
def test_every_word_of_a_conversation_reaches_the_model(
    render: Render, complaint: object, log: tuple[list[Message], list[int]]
) -> None:
    said, _ = log
    sent = json.dumps(render(ModelRequest(model="m", system="s", messages=tuple(said))), ensure_ascii=False)

    for message in said:
        if message.role != "assistant":
            assert text_of(message.parts) in sent
