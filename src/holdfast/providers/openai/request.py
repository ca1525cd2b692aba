"""Builds requests for the Chat Completions API. Pure: no network."""

import re

import msgspec

from holdfast.model.message import Content, File, Image, Reasoning, Text
from holdfast.model.provider import ModelRequest, ToolSpec
from holdfast.providers import media
from holdfast.providers.normalize import Block, CallWithResult, ModelBlock, UserBlock, result_parts
from holdfast.providers.rendered_prefix import RenderedBody, RenderedPrefix, assemble, encode_items
from holdfast.providers.sanitize import clean, clean_json, normalize_arguments, object_schema, safe_name

NAME = "openai"
OFFICIAL = "api.openai.com"
IDS = re.compile(r"[!-~]{1,40}")
NAMES = re.compile(r"[a-zA-Z0-9_-]{1,64}")
"""Names of users that every server accepts."""

FOLLOWS = "[image: see the next message]"
"""In place of an image in the text of a result."""

REASONING_FIELDS = {
    "api.deepseek.com": "reasoning_content",
    "api.moonshot.ai": "reasoning_content",
    "api.moonshot.cn": "reasoning_content",
}
"""Servers that reject an answer with tool calls but without this field, even if another model gave the answer."""


def _tool(tool: ToolSpec, name: str) -> dict[str, object]:
    function: dict[str, object] = {"name": name, "description": clean(tool.description)}
    function["parameters"] = object_schema(tool.parameters)
    if tool.strict:
        function["strict"] = True
    return {"type": "function", "function": function}


class OpenAiPrefix(RenderedPrefix):
    call_id_pattern = IDS
    tool_form = staticmethod(_tool)

    def __init__(self, server: str, tools: tuple[ToolSpec, ...]) -> None:
        super().__init__(server, tools)
        self.field: str | None = None
        """The field with which the messages were rendered."""
        self.own_field: str | None = None
        """The field that the server itself has used in them."""


def render(request: ModelRequest, *, server: str = OFFICIAL) -> RenderedBody:
    """The body of the request, for any sequence of messages.

    In addition to the form that `normalize` gives, it follows these rules:
    - each answer with `tool_calls` is followed directly by one `tool` message per call, and no other `tool` messages;
    - call ids are unique and at most 40 characters, tool names are valid function names;
    - the arguments of each call are the text of a JSON object;
    - `tool` and `assistant` messages contain only text; images of a result follow in a user message;
    - `tools` is never an empty list;
    - all text is UTF-8.
    Reasoning is sent back only to the `server` that produced it.
    """
    prefix = OpenAiPrefix.of(request, server)
    newest = _render_newest(request, prefix)
    if newest is None:  # the server has begun to use another field for its reasoning
        prefix = OpenAiPrefix(server, request.tools)
        newest = _render_newest(request, prefix)
        assert newest is not None
    body: dict[str, object] = {"stream": True, "stream_options": {"include_usage": True}}
    if prefix.declared_tools.items:
        body["tools"] = prefix.declared_tools.json
    if request.max_tokens is not None:
        body[_limit_field(server)] = max(1, request.max_tokens)
    if request.temperature is not None:
        body["temperature"] = request.temperature
    body |= {name: msgspec.json.decode(value) for name, value in request.options.items() if "." not in name}
    system = encode_items([{"role": "system", "content": clean(request.system)}]) if request.system.strip() else b""
    return RenderedBody(assemble(clean(request.model), system, prefix, newest, body), prefix)


def _limit_field(server: str) -> str:
    """Newer OpenAI models reject `max_tokens`; most compatible servers know only that."""
    official = server == OFFICIAL or server.endswith(".openai.azure.com")
    return "max_completion_tokens" if official else "max_tokens"


def _render_newest(request: ModelRequest, prefix: OpenAiPrefix) -> bytes | None:
    """Render the messages after the settled ones; None if those that the prefix keeps have another field for reasoning."""
    new = prefix.split(request.messages)
    own_field = _own_field(new.settled, prefix.server) or prefix.own_field
    field = _own_field(new.newest, prefix.server) or own_field or REASONING_FIELDS.get(prefix.server)
    if prefix.json and field != prefix.field:
        return None
    settled = _render_blocks(new.settled, prefix, field)
    newest = encode_items(_render_blocks(new.newest, prefix, field))
    prefix.settle(request, new, settled)
    prefix.field, prefix.own_field = field, own_field
    return newest


def _render_blocks(blocks: list[Block], prefix: OpenAiPrefix, field: str | None) -> list[dict[str, object]]:
    messages: list[dict[str, object]] = []
    shown: list[Content] = []
    for block in blocks:
        if isinstance(block, UserBlock):
            name = {"name": block.name} if NAMES.fullmatch(block.name) else {}
            messages.append({"role": "user", "content": _content((*shown, *block.parts)), **name})
            shown = []
            continue
        if shown:
            messages.append({"role": "user", "content": _content(tuple(shown))})
        messages.append(_answer(block, prefix.server, field, prefix.declared_tools.names))
        messages.extend(_result(call) for call in block.calls)
        shown = [part for call in block.calls for part in _images(call)]
    if shown:
        messages.append({"role": "user", "content": _content(tuple(shown))})
    return messages


def _answer(block: ModelBlock, server: str, field: str | None, names: dict[str, str]) -> dict[str, object]:
    text = "\n\n".join(media.text_of(part) for part in block.parts if not isinstance(part, Reasoning))
    message: dict[str, object] = {"role": "assistant", "content": text or None}
    thoughts = [part for part in block.parts if isinstance(part, Reasoning) and _is_from(part, server)]
    if field and block.calls:
        message[field] = clean("".join(part.text for part in thoughts))
    details = [item for part in thoughts for item in _kept_list(part, "reasoning_details")]
    if details:
        message["reasoning_details"] = details
    if block.calls:
        extra = {key: value for part in thoughts for key, value in _kept_object(part, "extra_content").items()}
        message["tool_calls"] = [_call(call, extra.get(call.source), names) for call in block.calls]
    return message


def _call(call: CallWithResult, extra: object, names: dict[str, str]) -> dict[str, object]:
    function = {
        "name": names.get(call.name) or safe_name(call.name),
        "arguments": normalize_arguments(call.arguments),
    }
    sent: dict[str, object] = {"id": call.id, "type": "function", "function": function}
    return {**sent, "extra_content": extra} if extra else sent


def _result(call: CallWithResult) -> dict[str, object]:
    text = "\n".join(FOLLOWS if _is_shown(part) else media.text_of(part) for part in result_parts(call.result))
    return {"role": "tool", "tool_call_id": call.id, "content": text}


def _is_shown(part: Content) -> bool:
    """Whether this is an image of a result that follows in a user message."""
    return isinstance(part, Image) and media.load_image(part) is not None


def _images(call: CallWithResult) -> list[Content]:
    found: list[Content] = []
    for part in result_parts(call.result):
        if _is_shown(part):
            found += [Text(f"[image from call {call.id}]"), part]
    return found


def _content(parts: tuple[Content, ...]) -> object:
    """Plain text where possible, because not every server accepts lists."""
    shown = [_part(part) for part in parts]
    if all(part["type"] == "text" for part in shown):
        return "\n\n".join(str(part["text"]) for part in shown)
    return shown


def _part(part: Content) -> dict[str, object]:
    if isinstance(part, Image) and (found := media.load_image(part)) is not None:
        url = found if isinstance(found, str) else f"data:{found.media_type};base64,{found.base64}"
        detail = {"detail": part.detail} if part.detail in {"auto", "low", "high"} else {}
        return {"type": "image_url", "image_url": {"url": url, **detail}}
    if isinstance(part, File) and (document := media.load_pdf(part)) is not None:
        data = f"data:application/pdf;base64,{document.base64}"
        return {"type": "file", "file": {"filename": clean(part.name) or "file.pdf", "file_data": data}}
    return {"type": "text", "text": media.text_of(part)}


def _own_field(blocks: list[Block], server: str) -> str | None:
    """The field in which the server sent the newest reasoning."""
    for block in reversed(blocks):
        for part in block.parts if isinstance(block, ModelBlock) else ():
            if isinstance(part, Reasoning) and _is_from(part, server) and part.opaque.get("field"):
                return part.opaque["field"]
    return None


def _is_from(part: Reasoning, server: str) -> bool:
    return part.provider == NAME and part.opaque.get("server") == server


def _kept_list(part: Reasoning, key: str) -> list[object]:
    value = _kept(part, key)
    return value if isinstance(value, list) else []


def _kept_object(part: Reasoning, key: str) -> dict[str, object]:
    value = _kept(part, key)
    return value if isinstance(value, dict) else {}


def _kept(part: Reasoning, key: str) -> object:
    if key not in part.opaque:
        return None
    try:
        return clean_json(msgspec.json.decode(part.opaque[key].encode("utf-8", "replace")))
    except (msgspec.DecodeError, ValueError, RecursionError):
        return None
