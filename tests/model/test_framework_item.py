"""The readable parts of items of other frameworks."""

import json
from typing import Any

import pytest

from holdfast.model.entry import Entry
from holdfast.model.event import ItemAdded, SessionOpened, UserSaid
from holdfast.model.framework.item import read_item
from holdfast.model.message import Part, Text, ToolCall, ToolResult
from holdfast.model.search_text import searchable
from holdfast.model.session import as_message, summarise

ITEMS: list[tuple[Any, tuple[Part, ...]]] = [
    ({"role": "user", "content": "Hello"}, (Text("Hello"),)),
    ({"role": "assistant", "content": [{"type": "output_text", "text": "Yes"}]}, (Text("Yes"),)),
    ({"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}, (ToolCall("c", "f", "{}"),)),
    ({"type": "function_call_output", "call_id": "c", "output": "12"}, (ToolResult("c", (Text("12"),)),)),
    ({"type": "function_call_output", "call_id": "c", "output": 12}, (ToolResult("c", (Text("12"),)),)),
    (
        {"type": "assistant", "message": {"content": [{"type": "tool_use", "id": "t", "name": "Read", "input": {}}]}},
        (ToolCall("t", "Read", "{}"),),
    ),
    (
        {"kind": "response", "parts": [{"part_kind": "text", "content": "Hi"}]},
        (Text("Hi"),),
    ),
    (
        {"content": {"role": "model", "parts": [{"functionCall": {"id": "1", "name": "g", "args": {"a": 1}}}]}},
        (ToolCall("1", "g", '{"a": 1}'),),
    ),
    ({"content": {"parts": [{"functionResponse": {"id": "1", "response": 5}}]}}, (ToolResult("1", (Text("5"),)),)),
    ({"role": "user", "content": None}, ()),
    ({"role": "assistant", "content": "Hi", "function_call": None}, (Text("Hi"),)),
    ({"content": {"parts": [{"text": "Hi", "functionCall": None, "functionResponse": None}]}}, (Text("Hi"),)),
    ([[[["deep"]]]], (Text("deep"),)),
    (5, ()),
]


@pytest.mark.parametrize(("item", "parts"), ITEMS)
def test_texts_calls_and_results_are_found_in_the_items_of_each_framework(item: Any, parts: tuple[Part, ...]) -> None:
    assert read_item(json.dumps(item)) == parts


def test_nesting_without_end_is_cut() -> None:
    assert read_item("[" * 50 + '"x"' + "]" * 50) == ()
    assert read_item("[" * 100_000) == (Text("[" * 100_000),)


def test_what_is_no_json_is_shown_as_it_is() -> None:
    assert read_item("{oops") == (Text("{oops"),)


def test_an_item_with_a_role_is_a_message_with_a_preview_and_is_searched() -> None:
    item = ItemAdded(adapter="x", item='{"content":"Where is it?"}', role="user")
    state = ItemAdded(adapter="x", item='{"content":"counter"}')
    summary = summarise([Entry(1, 1, SessionOpened(source="library")), Entry(2, 2, item), Entry(3, 3, state)])

    assert (summary.message_count, summary.preview, summary.active_at) == (1, "Where is it?", 3)
    assert searchable(item) == "Where is it?"
    assert searchable(state) == ""
    message = as_message(Entry(2, 2, item))
    assert message is not None
    assert (message.role, message.text) == ("user", "Where is it?")
    assert as_message(Entry(3, 3, state)) is None
    assert as_message(Entry(4, 4, UserSaid(turn_id="t", parts=(Text("x"),)))) is not None


def test_a_text_beside_the_item_stands_for_it() -> None:
    assert searchable(ItemAdded(adapter="x", item='"…"', role="assistant", text="Readable")) == "Readable"
