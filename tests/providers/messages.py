"""Helpers that build messages and requests."""

import json
from typing import Any

from holdfast.model.message import Message, Part, Role, Text, ToolCall, ToolResult
from holdfast.model.provider import ModelRequest, ToolSpec
from holdfast.providers.anthropic import request as anthropic_request
from holdfast.providers.openai import request as openai_request

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


def asking(*messages: Message, system: str = "Be kind.", tools: tuple[ToolSpec, ...] = (TERMINAL,)) -> ModelRequest:
    return ModelRequest(model="m", system=system, messages=messages, tools=tools)


def openai_body(request: ModelRequest, *, server: str = openai_request.OFFICIAL) -> dict[str, Any]:
    """The request body for OpenAI."""
    return dict(json.loads(openai_request.render(request, server=server).body))


def anthropic_body(request: ModelRequest, *, server: str = anthropic_request.OFFICIAL) -> dict[str, Any]:
    """The request body for Anthropic."""
    return dict(json.loads(anthropic_request.render(request, server=server).body))
