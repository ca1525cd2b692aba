"""Whatever a body holds, it is understood or refused."""

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from holdfast.api import shapes
from holdfast.api.errors import Refusal
from holdfast.model.event import Terms

NAMES = [*shapes.ChatRequest.__struct_fields__, *shapes.NEUTRAL, *shapes.PASSED_ON, "functions", "nonsense"]
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
def test_no_body_breaks_the_reader(more: dict[str, Any], messages: list[Any]) -> None:
    usual: dict[str, Any] = {"model": "holdfast", "messages": messages or [{"role": "user", "content": "hello"}]}

    try:
        asked = shapes.parse(json.dumps({**usual, **more}).encode())
        shapes.refuse_unknown_to("openai", asked.terms)
    except Refusal as refusal:
        assert 400 <= refusal.status < 500
        assert refusal.code and refusal.message


@given(body=st.binary(max_size=60))
def test_no_bytes_break_the_reader(body: bytes) -> None:
    try:
        shapes.parse(body)
    except Refusal as refusal:
        assert refusal.status == 400


def parse(**more: Any) -> shapes.Asked:
    body = {"model": "holdfast", "messages": [{"role": "user", "content": "hello"}], **more}
    return shapes.parse(json.dumps(body).encode())


def test_what_is_honoured_is_in_the_terms() -> None:
    tool = {"type": "function", "function": {"name": "f", "description": "d", "parameters": {"type": "object"}}}

    terms = parse(temperature=0.5, max_completion_tokens=7, tools=[tool], top_p=0.5, seed=3).terms

    assert (terms.temperature, terms.max_tokens) == (0.5, 7)
    assert [(offer.name, offer.description, offer.parameters) for offer in terms.tools] == [
        ("f", "d", '{"type": "object"}')
    ]
    assert terms.options == {"top_p": "0.5", "seed": "3"}


def test_no_tools_means_none_and_a_forced_tool_leaves_out_the_servers() -> None:
    tool = {"type": "function", "function": {"name": "f"}}

    assert parse(tools=[tool], tool_choice="none").terms.use_tools is False
    forced = parse(tools=[tool], tool_choice={"type": "function", "function": {"name": "f"}}).terms
    assert forced.our_tools is False
    assert json.loads(forced.options["tool_choice"]) == {"type": "function", "function": {"name": "f"}}
    assert parse().terms == Terms()


def test_system_texts_are_put_together_wherever_they_stand() -> None:
    messages = [
        {"role": "system", "content": "Be kind."},
        {"role": "user", "content": "hello"},
        {"role": "developer", "content": [{"type": "text", "text": "Be brief."}]},
    ]

    asked = parse(messages=messages)

    assert asked.system == "Be kind.\n\nBe brief."
    assert [given.role for given in asked.messages] == ["user"]
