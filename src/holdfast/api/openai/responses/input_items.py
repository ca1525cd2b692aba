"""Parse the input items of a response: messages, tool calls and tool results."""

import base64
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec

from holdfast.api.errors import ApiError
from holdfast.api.openai.chat_request import MAX_MESSAGES
from holdfast.api.openai.content import parse_part
from holdfast.engine.admission.history_match import ClientMessage
from holdfast.model.message import Content, Text, ToolCall

SUMMARY_FORMAT = "hf1."
"""The prefix of the content of a compaction item."""
SUMMARY = "[Summary of the conversation so far.]\n\n{}\n\n[End of the summary. Go on from here.]"


class SystemItem(msgspec.Struct, frozen=True):
    """A system message among the items."""

    text: str


class ItemReference(msgspec.Struct, frozen=True):
    """A reference to an item stored on the server."""

    id: str
    where: str


Item = ClientMessage | SystemItem | ItemReference
Resolve = Callable[[ItemReference], Sequence[ClientMessage]]


def parse_items(given: str | list[dict[str, Any]], param: str = "input") -> list[Item]:
    """Parse the items of a request. Raises ApiError naming the invalid one."""
    if isinstance(given, str):
        return [ClientMessage(role="user", parts=(Text(given),))]
    if not given:
        raise ApiError(400, "invalid_request", f"{param} must not be empty", param)
    if len(given) > MAX_MESSAGES:
        reason = f"{len(given):,} items exceed the limit of {MAX_MESSAGES:,}; name the session and send only new ones"
        raise ApiError(400, "too_many_messages", reason, param)
    return [found for n, item in enumerate(given) if (found := _item(item, f"{param}[{n}]")) is not None]


def _item(item: dict[str, Any], where: str) -> Item | None:
    match item.get("type", "message"):
        case "message":
            return _message(item, where)
        case "function_call":
            return ClientMessage(role="assistant", calls=(_call(item, where),))
        case "function_call_output":
            call_id = _text(item, "call_id", where)
            return ClientMessage(role="tool", parts=parse_parts(item.get("output"), f"{where}.output"), call_id=call_id)
        case "item_reference":
            return ItemReference(_text(item, "id", where), where)
        case "compaction":
            return ClientMessage(role="user", parts=(Text(_summary(item, where)),))
        case "reasoning":
            return None  # the log has the model's own reasoning; that of other models is not used
        case kind:
            reason = f"{where}: item type must be message, function_call, function_call_output, reasoning, compaction or item_reference, not {kind!r}"
            raise ApiError(400, "unsupported_content", reason, f"{where}.type")


def _message(item: dict[str, Any], where: str) -> ClientMessage | SystemItem:
    role = item.get("role")
    said = parse_parts(item.get("content"), f"{where}.content")
    if role in ("system", "developer"):
        if not all(isinstance(part, Text) for part in said):
            raise ApiError(
                400, "invalid_request", f"{where}: system messages may contain only text", f"{where}.content"
            )
        return SystemItem("".join(part.text for part in said if isinstance(part, Text)))
    if role not in ("user", "assistant"):
        reason = f"{where}.role must be user, assistant, system or developer"
        raise ApiError(400, "invalid_value", reason, f"{where}.role")
    return ClientMessage(role=role, parts=said)


def encode_summary(text: str) -> str:
    """Encode a summary as the content of a compaction item. It is opaque to clients, not secret: it comes from their input."""
    return SUMMARY_FORMAT + base64.urlsafe_b64encode(text.encode("utf-8", "replace")).decode("ascii")


def _summary(item: dict[str, Any], where: str) -> str:
    """The text that the model sees in place of the compacted messages."""
    content = _text(item, "encrypted_content", where)
    try:
        if not content.startswith(SUMMARY_FORMAT):
            raise ValueError("another format")
        text = base64.b64decode(content.removeprefix(SUMMARY_FORMAT), b"-_", validate=True).decode("utf-8")
    except ValueError as e:
        reason = f"{where}.encrypted_content does not come from /v1/responses/compact of this server"
        raise ApiError(400, "invalid_value", reason, f"{where}.encrypted_content") from e
    return SUMMARY.format(text)


def _call(item: dict[str, Any], where: str) -> ToolCall:
    name, space = _text(item, "name", where), item.get("namespace")
    name = qualified_name(space, name) if isinstance(space, str) and space else name
    return ToolCall(_text(item, "call_id", where), name, _text(item, "arguments", where))


def qualified_name(space: str, name: str) -> str:
    """Return the name under which the model calls a namespaced tool."""
    return f"{space}__{name}"


def parse_parts(given: object, where: str) -> tuple[Content, ...]:
    """Parse content in the format of the Responses API."""
    if isinstance(given, str):
        return (Text(given),)
    if not isinstance(given, list) or not given:
        raise ApiError(400, "invalid_type", f"{where} must be a string or a list of parts", where)
    return tuple(_part(part, f"{where}[{n}]") for n, part in enumerate(given))


def _part(part: object, where: str) -> Content:
    if not isinstance(part, dict):
        raise ApiError(400, "invalid_type", f"{where} must be an object", where)
    match part.get("type"):
        case "input_text" | "output_text" | "text":
            return Text(_text(part, "text", where))
        case "refusal":
            return Text(_text(part, "refusal", where))
        case "input_image" if not part.get("file_id"):
            image = {"url": part.get("image_url"), "detail": part.get("detail")}
            return parse_part({"type": "image_url", "image_url": image}, where)
        case "input_file" if not part.get("file_url") and not part.get("file_id"):
            return parse_part({"type": "file", "file": part}, where)
        case "input_image" | "input_file":
            reason = f"{where}: images and files by id, and files by URL, are not supported; send the data"
            raise ApiError(400, "unsupported_content", reason, where)
        case kind:
            reason = (
                f"{where}: part type must be input_text, output_text, refusal, input_image or input_file, not {kind!r}"
            )
            raise ApiError(400, "unsupported_content", reason, f"{where}.type")


def _text(item: dict[str, Any], name: str, where: str) -> str:
    value = item.get(name)
    if not isinstance(value, str):
        raise ApiError(400, "invalid_type", f"{where}.{name} must be a string", f"{where}.{name}")
    return value


def system_text(items: Iterable[Item]) -> str | None:
    """Join the system messages among the items; None if there are none."""
    texts = [item.text for item in items if isinstance(item, SystemItem)]
    return "\n\n".join(texts) if texts else None


def to_messages(items: Iterable[Item], resolve: Resolve) -> tuple[ClientMessage, ...]:
    """Convert items to messages: tool calls join the assistant message before them."""
    found: list[ClientMessage] = []
    for item in items:
        for given in resolve(item) if isinstance(item, ItemReference) else [item]:
            if isinstance(given, SystemItem):
                continue
            last = found[-1] if found else None
            if given.calls and last is not None and last.role == "assistant":
                found[-1] = msgspec.structs.replace(last, calls=(*last.calls, *given.calls))
            else:
                found.append(given)
    return tuple(found)
