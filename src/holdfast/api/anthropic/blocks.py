"""Content blocks of Anthropic's API, and their meaning as messages of the engine."""

import base64
import json
from collections.abc import Sequence
from typing import Any, Literal

import msgspec

from holdfast.api.errors import ApiError
from holdfast.api.openai.content import parse_part
from holdfast.engine.admission.history_match import ClientMessage
from holdfast.model.message import Content, Text, ToolCall

Object = dict[str, Any]


class _InputBlock(msgspec.Struct, frozen=True, tag_field="type"):
    """`cache_control` is accepted in every block: the server sets its own cache breakpoints."""


class MessageText(_InputBlock, frozen=True, tag="text"):
    text: str


class MessageImage(_InputBlock, frozen=True, tag="image"):
    source: Object


class MessageDocument(_InputBlock, frozen=True, tag="document"):
    source: Object
    title: str | None = None
    context: str | None = None
    citations: Object | None = None


class ToolReference(_InputBlock, frozen=True, tag="tool_reference"):
    """Loads a tool that was sent with `defer_loading`."""

    tool_name: str


class MessageToolUse(_InputBlock, frozen=True, tag="tool_use"):
    id: str
    name: str
    input: Object


class MessageToolResult(_InputBlock, frozen=True, tag="tool_result"):
    tool_use_id: str
    content: str | list[MessageText | MessageImage | MessageDocument | ToolReference] | None = None
    is_error: bool | None = None


class MessageThinking(_InputBlock, frozen=True, tag="thinking"):
    """Not used: the log has the model's own thinking."""

    thinking: str
    signature: str


class RedactedThinking(_InputBlock, frozen=True, tag="redacted_thinking"):
    data: str


Block = (
    MessageText
    | MessageImage
    | MessageDocument
    | MessageToolUse
    | MessageToolResult
    | MessageThinking
    | RedactedThinking
)


class InputMessage(msgspec.Struct, frozen=True):
    role: Literal["user", "assistant", "system"]
    content: str | list[Block]


def parse_message(message: InputMessage, where: str) -> list[ClientMessage] | str:
    """Parse a message: results of tools become messages of their own. For a system message, return its text."""
    if isinstance(message.content, str):
        blocks: Sequence[Block] = (MessageText(message.content),) if message.content else ()
    else:
        blocks = message.content
    if message.role == "assistant":
        return [_answer(blocks, where)]
    if message.role == "system":
        return system_text(blocks, f"{where}.content")
    if not blocks:
        raise ApiError(400, "invalid_request", f"{where}.content: must not be empty", f"{where}.content")
    return _user(blocks, where)


def system_text(blocks: Sequence[object], where: str) -> str:
    """The text of system blocks, separated by an empty line."""
    texts = []
    for n, block in enumerate(blocks):
        if not isinstance(block, MessageText):
            raise _misplaced(block, "a system text", f"{where}[{n}]")
        texts.append(block.text)
    return "\n\n".join(texts)


def _user(blocks: Sequence[Block], where: str) -> list[ClientMessage]:
    """The results in the message, then the rest of it."""
    found: list[ClientMessage] = []
    parts: list[Content] = []
    for n, block in enumerate(blocks):
        place = f"{where}.content[{n}]"
        match block:
            case MessageToolResult():
                found.append(_result(block, place))
            case MessageText() | MessageImage() | MessageDocument():
                parts += _content(block, place)
            case _:
                raise _misplaced(block, "a user message", place)
    return [*found, ClientMessage(role="user", parts=tuple(parts))] if parts else found


def _answer(blocks: Sequence[Block], where: str) -> ClientMessage:
    """A reply of the model; it may be empty, as some replies are."""
    parts: list[Content] = []
    calls: list[ToolCall] = []
    for n, block in enumerate(blocks):
        match block:
            case MessageText():
                parts.append(Text(block.text))
            case MessageToolUse():
                calls.append(ToolCall(block.id, block.name, json.dumps(block.input)))
            case MessageThinking() | RedactedThinking():
                pass
            case _:
                raise _misplaced(block, "an assistant message", f"{where}.content[{n}]")
    if len({call.id for call in calls}) < len(calls) or not all(call.id for call in calls):
        raise ApiError(400, "invalid_request", f"{where}: tool_use blocks need unique ids", f"{where}.content")
    return ClientMessage(role="assistant", parts=tuple(parts), calls=tuple(calls))


def _result(block: MessageToolResult, where: str) -> ClientMessage:
    if not block.tool_use_id:
        raise ApiError(400, "invalid_request", f"{where}.tool_use_id: must not be empty", f"{where}.tool_use_id")
    given = block.content or ()
    blocks = (MessageText(given),) if isinstance(given, str) else given
    parts = [part for n, one in enumerate(blocks) for part in _content(one, f"{where}.content[{n}]", in_result=True)]
    return ClientMessage(role="tool", parts=tuple(parts), call_id=block.tool_use_id, failed=bool(block.is_error))


def _content(
    block: MessageText | MessageImage | MessageDocument | ToolReference, where: str, *, in_result: bool = False
) -> list[Content]:
    match block:
        case MessageText():
            if not block.text and not in_result:
                reason = f"{where}.text: text content blocks must be non-empty"
                raise ApiError(400, "invalid_request", reason, f"{where}.text")
            return [Text(block.text)] if block.text else []
        case MessageImage():
            return [parse_part({"type": "image_url", "image_url": {"url": _image_url(block.source, where)}}, where)]
        case MessageDocument():
            return _document(block, where)
        case ToolReference():
            return [Text(f"The tool {block.tool_name} is now available.")]


def _image_url(source: Object, where: str) -> str:
    match source:
        case {"type": "url", "url": str(url)}:
            return url
        case {"type": "base64", "media_type": str(kind), "data": str(data)}:
            return f"data:{kind};base64,{data}"
    reason = f"{where}.source: must be base64 with media_type and data, or a url"
    raise ApiError(400, "unsupported_content", reason, f"{where}.source")


def _document(block: MessageDocument, where: str) -> list[Content]:
    match block.source:
        case {"type": "base64", "media_type": "application/pdf", "data": str(data)}:
            url = f"data:application/pdf;base64,{data}"
        case {"type": "text", "data": str(data)}:
            encoded = base64.b64encode(data.encode("utf-8", "replace")).decode("ascii")
            url = f"data:text/plain;base64,{encoded}"
        case _:
            reason = f"{where}.source: a document must be a PDF in base64, or text"
            raise ApiError(400, "unsupported_content", reason, f"{where}.source")
    if block.citations and block.citations.get("enabled"):
        reason = f"{where}.citations: citations are not supported"
        raise ApiError(400, "unsupported_content", reason, f"{where}.citations")
    file = parse_part({"type": "file", "file": {"file_data": url, "filename": block.title or ""}}, where)
    return [Text(f"{block.context}\n"), file] if block.context else [file]


def _misplaced(block: object, place: str, where: str) -> ApiError:
    kind = type(block).__struct_config__.tag if isinstance(block, msgspec.Struct) else type(block).__name__
    return ApiError(400, "invalid_request", f"{where}: a {kind} block cannot be part of {place}", where)


def referenced_tools(messages: Sequence[InputMessage]) -> set[str]:
    """The deferred tools that results have loaded."""
    return {
        part.tool_name
        for message in messages
        if not isinstance(message.content, str)
        for block in message.content
        if isinstance(block, MessageToolResult) and isinstance(block.content, list)
        for part in block.content
        if isinstance(part, ToolReference)
    }
