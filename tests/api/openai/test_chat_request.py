"""Every body is parsed or refused."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.api.errors import ApiError
from holdfast.api.openai import chat_request
from holdfast.model.event import RequestOptions

NAMES = [
    *chat_request.ChatRequest.__struct_fields__,
    *chat_request.NO_EFFECT,
    *chat_request.FORWARDED,
    "functions",
    "nonsense",
]
WORDS = [
    "user",
    "assistant",
    "tool",
    "system",
    "function",
    "text",
    "image_url",
    "file",
    "holdfast",
    "auto",
    "required",
    "",
]
KEYS = ["role", "content", "type", "text", "image_url", "url", "file", "file_data", "tool_calls", "id", "function"]
KEYS += ["name", "arguments", "parameters", "tool_call_id", "include_usage", "strict"]
anything = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.sampled_from(WORDS)
    | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=4),
    max_leaves=12,
)


@given(more=st.dictionaries(st.sampled_from(NAMES), anything, max_size=4), messages=st.lists(anything, max_size=3))
def test_no_body_crashes_the_parser(more: dict[str, Any], messages: list[Any]) -> None:
    usual: dict[str, Any] = {"model": "holdfast", "messages": messages or [{"role": "user", "content": "hello"}]}

    try:
        asked = chat_request.parse(json.dumps({**usual, **more}).encode())
        chat_request.check_provider_options("openai", asked.terms)
    except ApiError as refusal:
        assert 400 <= refusal.status < 500
        assert refusal.code and refusal.message


@given(body=st.binary(max_size=60))
def test_no_bytes_crash_the_parser(body: bytes) -> None:
    try:
        chat_request.parse(body)
    except ApiError as refusal:
        assert refusal.status == 400


def parse(**more: Any) -> chat_request.ParsedRequest:
    body = {"model": "holdfast", "messages": [{"role": "user", "content": "hello"}], **more}
    return chat_request.parse(json.dumps(body).encode())


def test_honoured_parameters_are_in_the_request_options() -> None:
    tool = {"type": "function", "function": {"name": "f", "description": "d", "parameters": {"type": "object"}}}

    terms = parse(temperature=0.5, max_completion_tokens=7, tools=[tool], top_p=0.5, seed=3).terms

    assert (terms.temperature, terms.max_tokens) == (0.5, 7)
    assert [(offer.name, offer.description, offer.parameters) for offer in terms.tools] == [
        ("f", "d", '{"type": "object"}')
    ]
    assert terms.options == {"top_p": "0.5", "seed": "3"}


def test_tool_choice_none_offers_no_tools_and_a_forced_tool_hides_those_of_the_server() -> None:
    tool = {"type": "function", "function": {"name": "f"}}

    assert parse(tools=[tool], tool_choice="none").terms.use_tools is False
    forced = parse(tools=[tool], tool_choice={"type": "function", "function": {"name": "f"}}).terms
    assert forced.our_tools is False
    assert json.loads(forced.options["tool_choice"]) == {"type": "function", "function": {"name": "f"}}
    assert parse().terms == RequestOptions()


@pytest.mark.parametrize("name", [["f"], {"f": 1}, 1, None])
def test_an_allowed_tool_whose_name_is_no_text_is_refused(name: Any) -> None:
    tool = {"type": "function", "function": {"name": "f"}}
    allowed = {"mode": "auto", "tools": [{"type": "function", "function": {"name": name}}]}

    with pytest.raises(ApiError) as refused:
        parse(tools=[tool], tool_choice={"type": "allowed_tools", "allowed_tools": allowed})
    assert (refused.value.status, refused.value.param) == (400, "tool_choice")


def test_system_texts_are_joined_wherever_they_are() -> None:
    messages = [
        {"role": "system", "content": "Be kind."},
        {"role": "user", "content": "hello"},
        {"role": "developer", "content": [{"type": "text", "text": "Be brief."}]},
    ]

    asked = parse(messages=messages)

    assert asked.system == "Be kind.\n\nBe brief."
    assert [given.role for given in asked.messages] == ["user"]


@pytest.mark.parametrize("content", [None, "", []])
def test_a_reply_with_calls_needs_no_content(content: Any) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    reply = {"role": "assistant", "content": content, "tool_calls": [call]}
    result = {"role": "tool", "tool_call_id": "c1", "content": "seen"}

    asked = parse(messages=[{"role": "user", "content": "hello"}, reply, result])

    assert (asked.messages[1].role, asked.messages[1].parts) == ("assistant", ())
