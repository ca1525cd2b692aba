"""The input of a response, item by item: what was said, called and returned, as the engine knows it."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec

from holdfast.api.content import part_of
from holdfast.api.errors import Refusal
from holdfast.api.shapes import MAX_MESSAGES
from holdfast.engine.branches import Given
from holdfast.model.message import Content, Text, ToolCall


class System(msgspec.Struct, frozen=True):
    """System text among the items."""

    text: str


class Reference(msgspec.Struct, frozen=True):
    """An item that the server knows, by its id."""

    id: str
    where: str


Item = Given | System | Reference
Resolve = Callable[[Reference], Sequence[Given]]


def read(given: str | list[dict[str, Any]]) -> list[Item]:
    """The items of a request. Raises a Refusal that names the one that cannot be taken."""
    if isinstance(given, str):
        return [Given(role="user", parts=(Text(given),))]
    if not given:
        raise Refusal(400, "invalid_request", "the input must not be empty", "input")
    if len(given) > MAX_MESSAGES:
        told = f"{len(given):,} items are over the limit of {MAX_MESSAGES:,}; name the session and send only new ones"
        raise Refusal(400, "too_many_messages", told, "input")
    return [found for n, item in enumerate(given) if (found := _item(item, f"input[{n}]")) is not None]


def _item(item: dict[str, Any], where: str) -> Item | None:
    match item.get("type", "message"):
        case "message":
            return _message(item, where)
        case "function_call":
            return Given(role="assistant", calls=(_call(item, where),))
        case "function_call_output":
            call_id = _text(item, "call_id", where)
            return Given(role="tool", parts=parts(item.get("output"), f"{where}.output"), call_id=call_id)
        case "item_reference":
            return Reference(_text(item, "id", where), where)
        case "reasoning":
            return None  # the log has the model's own reasoning; that of other models is of no use to it
        case kind:
            told = f"{where}: an item is a message, function_call, function_call_output, reasoning or item_reference, not {kind!r}"
            raise Refusal(400, "unsupported_content", told, f"{where}.type")


def _message(item: dict[str, Any], where: str) -> Given | System:
    role = item.get("role")
    said = parts(item.get("content"), f"{where}.content")
    if role in ("system", "developer"):
        if not all(isinstance(part, Text) for part in said):
            raise Refusal(400, "invalid_request", f"{where}: system text can hold only text", f"{where}.content")
        return System("".join(part.text for part in said if isinstance(part, Text)))
    if role not in ("user", "assistant"):
        told = f"{where}.role must be user, assistant, system or developer"
        raise Refusal(400, "invalid_value", told, f"{where}.role")
    return Given(role=role, parts=said)


def _call(item: dict[str, Any], where: str) -> ToolCall:
    name, space = _text(item, "name", where), item.get("namespace")
    name = in_namespace(space, name) if isinstance(space, str) and space else name
    return ToolCall(_text(item, "call_id", where), name, _text(item, "arguments", where))


def in_namespace(space: str, name: str) -> str:
    """What the model calls a tool that stands in a namespace."""
    return f"{space}__{name}"


def parts(given: object, where: str) -> tuple[Content, ...]:
    """Content as the Responses API writes it."""
    if isinstance(given, str):
        return (Text(given),)
    if not isinstance(given, list) or not given:
        raise Refusal(400, "invalid_type", f"{where} must be a text or a list of parts", where)
    return tuple(_part(part, f"{where}[{n}]") for n, part in enumerate(given))


def _part(part: object, where: str) -> Content:
    if not isinstance(part, dict):
        raise Refusal(400, "invalid_type", f"{where} must be an object", where)
    match part.get("type"):
        case "input_text" | "output_text" | "text":
            return Text(_text(part, "text", where))
        case "refusal":
            return Text(_text(part, "refusal", where))
        case "input_image" if not part.get("file_id"):
            image = {"url": part.get("image_url"), "detail": part.get("detail")}
            return part_of({"type": "image_url", "image_url": image}, where)
        case "input_file" if not part.get("file_url") and not part.get("file_id"):
            return part_of({"type": "file", "file": part}, where)
        case "input_image" | "input_file":
            told = f"{where}: pictures and files by id, and files by address, are not supported; send the data"
            raise Refusal(400, "unsupported_content", told, where)
        case kind:
            told = f"{where}: a part is input_text, output_text, refusal, input_image or input_file, not {kind!r}"
            raise Refusal(400, "unsupported_content", told, f"{where}.type")


def _text(item: dict[str, Any], name: str, where: str) -> str:
    value = item.get(name)
    if not isinstance(value, str):
        raise Refusal(400, "invalid_type", f"{where}.{name} must be a text", f"{where}.{name}")
    return value


def system_text(items: Iterable[Item]) -> str | None:
    """The system text among the items; None if there is none."""
    texts = [item.text for item in items if isinstance(item, System)]
    return "\n\n".join(texts) if texts else None


def messages(items: Iterable[Item], resolve: Resolve) -> tuple[Given, ...]:
    """The items as messages: calls belong to the answer that they stand behind."""
    found: list[Given] = []
    for item in items:
        for given in resolve(item) if isinstance(item, Reference) else [item]:
            if isinstance(given, System):
                continue
            last = found[-1] if found else None
            if given.calls and last is not None and last.role == "assistant":
                found[-1] = msgspec.structs.replace(last, calls=(*last.calls, *given.calls))
            else:
                found.append(given)
    return tuple(found)
