"""Builds the request for the library that runs embedded models.

Models whose registry entry allows it can use tools. The library's own tool calling is not used, because it depends on
templates that small models do not follow: the output is constrained to a schema, `{"tool", "args"}` or `{"say"}`.
"""

import json
from collections.abc import Collection, Sequence
from typing import Any

from holdfast.model.message import File, Image, Message, Part, Reasoning, Text, ToolCall, ToolResult
from holdfast.model.provider import ModelRequest, ToolSpec
from holdfast.providers.local import models
from holdfast.providers.sanitize import clean

MAX_TOKENS = 1024
"""The default limit: a small model that repeats itself never stops."""

Json = dict[str, Any]

HOW_TO_USE_TOOLS = """
Reply with one JSON object: {"tool": name, "args": {...}} to use a tool, or {"say": text} to answer.
Use a tool when you need it, then answer from its result.

Tools:
"""


def build_request(request: ModelRequest, *, shows_tools: bool) -> Json:
    """The request for the library, in the format of OpenAI's chat completions."""
    known = models.EMBEDDED.get(request.model)
    system = known.system if known and known.system is not None else request.system
    body: Json = {
        "model": request.model,
        "stream": True,
        "stream_options": {"include_usage": True},
        # Progress reports are the only callbacks during a long prompt, and so the only chance to stop it.
        "return_progress": True,
        "temperature": 0 if request.temperature is None else request.temperature,
        "max_tokens": MAX_TOKENS if request.max_tokens is None else request.max_tokens,
        "repeat_penalty": known.repeat_penalty if known else 1.0,
    }
    if shows_tools:
        system += HOW_TO_USE_TOOLS + "\n".join(_describe_tool(tool) for tool in request.tools)
        body["response_format"] = {"type": "json_schema", "json_schema": {"schema": reply_schema(request.tools)}}
    body["messages"] = [{"role": "system", "content": clean(system)}] if system else []
    body["messages"] += _alternate_roles(request.messages, as_json=shows_tools)
    return body


def reply_schema(tools: Collection[ToolSpec]) -> Json:
    """The schema of a reply: one call of one of the tools, or text."""
    return {
        "anyOf": [
            _shape(say={"type": "string"}),
            *(_shape(tool={"const": tool.name}, args=_arguments(tool)) for tool in tools),
        ]
    }


def _shape(**properties: Json) -> Json:
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


def _arguments(tool: ToolSpec) -> Json:
    # A `$ref` is relative to the root of the schema, which changes here.
    return {"type": "object"} if "$ref" in json.dumps(tool.parameters) else dict(tool.parameters)


def _describe_tool(tool: ToolSpec) -> str:
    """The tool in two lines: a small model would take a minute to read the full descriptions."""
    first_paragraph = " ".join(tool.description.strip().split("\n\n")[0].split())
    return f"- {tool.name}: {first_paragraph}\n  args: {json.dumps(tool.parameters.get('properties', {}))}"


def _alternate_roles(messages: Sequence[Message], *, as_json: bool) -> list[Json]:
    """The conversation with alternating user and assistant roles, which some templates require."""
    names = {call.id: call.name for message in messages for call in message.tool_calls}
    turns: list[Json] = []
    for message in messages:
        role = "assistant" if message.role == "assistant" else "user"
        lines = [line for part in message.parts if (line := _line(part, role, names, as_json=as_json))]
        if not lines:
            continue
        text = clean("\n".join(lines))
        if turns and turns[-1]["role"] == role:
            turns[-1]["content"] += "\n\n" + text
        else:
            turns.append({"role": role, "content": text})
    return turns


def _line(part: Part, role: str, names: dict[str, str], *, as_json: bool) -> str:
    match part:
        case Text(text=text):
            return json.dumps({"say": text}, ensure_ascii=False) if as_json and role == "assistant" else text
        case ToolCall():
            # A model without tools would only imitate the calls of another model.
            return f'{{"tool": {json.dumps(part.name)}, "args": {part.arguments}}}' if as_json else ""
        case ToolResult():
            said = "\n".join(_line(inner, "user", names, as_json=as_json) for inner in part.parts)
            return f"Result of {names.get(part.call_id, 'a tool')} ({part.outcome}):\n{said}"
        case Image() | File():
            return "[image or file that this model cannot read]"
        case Reasoning():
            return ""
