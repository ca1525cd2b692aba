"""The readable parts of an item of another agent framework, for transcripts, previews and search. Pure.

Frameworks nest the same few things in different ways: texts, tool calls and tool results. Everything else stays in the
item, which the log keeps as it was written.
"""

import json
from collections.abc import Iterator
from typing import Any

from holdfast.model.message import Part, Text, ToolCall, ToolResult

CHANNEL = "framework"
"""The first word of the channels of such sessions: `framework:adapter:name`."""
CALLS = {"function_call", "tool_use", "tool-call", "tool_call"}
RESULTS = {"function_call_output", "tool_result", "tool-return"}
NESTED = ("message", "content", "parts", "summary")
MAX_DEPTH = 12
"""Deeper nesting is no message."""


def read_item(item: str, text: str = "") -> tuple[Part, ...]:
    """The parts of an item. `text` stands for an item that is not readable."""
    if text:
        return (Text(text),)
    try:
        return tuple(_parts(json.loads(item), MAX_DEPTH))
    except (ValueError, RecursionError):
        return (Text(item),)


def _parts(value: Any, depth: int) -> Iterator[Part]:
    if isinstance(value, str):
        yield from [Text(value)] if value else []
    elif depth and isinstance(value, list):
        for one in value:
            yield from _parts(one, depth - 1)
    elif depth and isinstance(value, dict):
        yield from _object(value, depth)


def _object(value: dict[str, Any], depth: int) -> Iterator[Part]:
    kind = value.get("type") or value.get("part_kind")
    if kind in CALLS:
        yield ToolCall(
            _first(value, "call_id", "tool_call_id", "id"), _first(value, "name", "tool_name"), _arguments(value)
        )
    elif kind in RESULTS:
        yield _result(value, depth)
    elif (call := _nested(value, "functionCall", "function_call")) is not None:
        yield ToolCall(_first(call, "id"), _first(call, "name"), _dump(call.get("args", {})))
    elif (response := _nested(value, "functionResponse", "function_response")) is not None:
        yield ToolResult(_first(response, "id"), (Text(_dump(response.get("response"))),))
    elif isinstance(value.get("text"), str):
        yield from _parts(value["text"], depth)
    else:
        for name in NESTED:
            yield from _parts(value.get(name), depth - 1)


def _nested(value: dict[str, Any], *names: str) -> dict[str, Any] | None:
    """The object with one of these names. A framework may also write null for one that is not there."""
    return next((value[name] for name in names if isinstance(value.get(name), dict)), None)


def _result(value: dict[str, Any], depth: int) -> ToolResult:
    output = value.get("output", value.get("content"))
    found = tuple(part for part in _parts(output, depth - 1) if isinstance(part, Text))
    if not found and output not in (None, "", []):
        found = (Text(_dump(output)),)
    return ToolResult(_first(value, "call_id", "tool_use_id", "tool_call_id"), found)


def _arguments(value: dict[str, Any]) -> str:
    given: object = next((value[name] for name in ("arguments", "input", "args") if name in value), {})
    return given if isinstance(given, str) else _dump(given)


def _first(value: dict[str, Any], *names: str) -> str:
    return next((value[name] for name in names if isinstance(value.get(name), str)), "")


def _dump(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)
