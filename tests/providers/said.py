"""Short ways to write messages and requests in tests."""

from holdfast.model.asking import Request, ToolSpec
from holdfast.model.message import Message, Part, Role, Text, ToolCall, ToolResult

TERMINAL = ToolSpec("terminal", "Run a command.", {"type": "object", "properties": {"command": {"type": "string"}}})


def message(role: Role, *parts: Part | str, partial: bool = False) -> Message:
    return Message(0, role, tuple(Text(part) if isinstance(part, str) else part for part in parts), 0, partial)


def user(*parts: Part | str) -> Message:
    return message("user", *parts)


def model(*parts: Part | str, partial: bool = False) -> Message:
    return message("assistant", *parts, partial=partial)


def called(id: str = "c1", name: str = "terminal", arguments: str = '{"command": "ls"}') -> ToolCall:
    return ToolCall(id, name, arguments)


def result(id: str = "c1", text: str = "three files") -> Message:
    return message("tool", ToolResult(id, (Text(text),)))


def asking(*messages: Message, system: str = "Be kind.", tools: tuple[ToolSpec, ...] = (TERMINAL,)) -> Request:
    return Request(model="m", system=system, messages=messages, tools=tools)
