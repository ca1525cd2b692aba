"""A request in the words of the Chat Completions API. Pure: no SDK, no network."""

import re

import msgspec

from holdfast.model.asking import Request, ToolSpec
from holdfast.model.message import Content, File, Image, Reasoning, Text
from holdfast.providers import media
from holdfast.providers.arrange import Answered, Block, Call, Said, arrange, result_parts
from holdfast.providers.wire import argument_text, clean, offered, safe_name, schema, scrub

NAME = "openai"
OFFICIAL = "api.openai.com"
IDS = re.compile(r"[!-~]{1,40}")

REASONING_FIELDS = {
    "api.deepseek.com": "reasoning_content",
    "api.moonshot.ai": "reasoning_content",
    "api.moonshot.cn": "reasoning_content",
}
"""Servers that refuse an answer with tool calls that lacks this field, also when another model gave the answer."""


def render(request: Request, *, server: str = OFFICIAL) -> dict[str, object]:
    """The body of the request, for any messages whatever.

    Beside the shape that `arrange` gives, it obeys these rules:
    - each answer with `tool_calls` is followed at once by one `tool` message for each call, and no other is sent;
    - ids of calls are unique and at most 40 characters, names match what functions may be called;
    - the arguments of each call are the text of a JSON object;
    - `tool` and `assistant` messages hold only text; pictures of a result follow in a message of the user;
    - `tools` is never an empty list;
    - all text is UTF-8.
    Reasoning goes back to the `server` that gave it and to no other.
    """
    tools = offered(request.tools)
    names = {tool.name: name for name, tool in tools.items()}
    body: dict[str, object] = {
        "model": clean(request.model),
        "messages": _messages(request, server, names),
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    if tools:
        body["tools"] = [_tool(tool, name) for name, tool in tools.items()]
    if request.max_tokens is not None:
        body[_limit_field(server)] = max(1, request.max_tokens)
    if request.temperature is not None:
        body["temperature"] = request.temperature
    body |= {name: msgspec.json.decode(value) for name, value in request.options.items()}
    return body


def _limit_field(server: str) -> str:
    """Newer OpenAI models refuse `max_tokens`; most compatible servers know nothing else."""
    official = server == OFFICIAL or server.endswith(".openai.azure.com")
    return "max_completion_tokens" if official else "max_tokens"


def _tool(tool: ToolSpec, name: str) -> dict[str, object]:
    function = {"name": name, "description": clean(tool.description), "parameters": schema(tool.parameters)}
    return {"type": "function", "function": function}


def _messages(request: Request, server: str, names: dict[str, str]) -> list[dict[str, object]]:
    blocks = arrange(request.messages, IDS)
    field = _reasoning_field(blocks, server)
    messages: list[dict[str, object]] = []
    if request.system.strip():
        messages.append({"role": "system", "content": clean(request.system)})
    shown: list[Content] = []
    for block in blocks:
        if isinstance(block, Said):
            messages.append({"role": "user", "content": _content((*shown, *block.parts))})
            shown = []
            continue
        if shown:
            messages.append({"role": "user", "content": _content(tuple(shown))})
        messages.append(_answer(block, server, field, names))
        messages.extend(_result(call) for call in block.calls)
        shown = [part for call in block.calls for part in _pictures(call)]
    if shown:
        messages.append({"role": "user", "content": _content(tuple(shown))})
    return messages


def _answer(block: Answered, server: str, field: str | None, names: dict[str, str]) -> dict[str, object]:
    text = "\n\n".join(_words(part) for part in block.parts if not isinstance(part, Reasoning))
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


def _call(call: Call, extra: object, names: dict[str, str]) -> dict[str, object]:
    function = {
        "name": names.get(call.name) or safe_name(call.name),
        "arguments": argument_text(call.arguments),
    }
    sent: dict[str, object] = {"id": call.id, "type": "function", "function": function}
    return {**sent, "extra_content": extra} if extra else sent


def _result(call: Call) -> dict[str, object]:
    text = "\n".join(_words(part) for part in result_parts(call.result))
    return {"role": "tool", "tool_call_id": call.id, "content": text}


def _pictures(call: Call) -> list[Content]:
    found: list[Content] = []
    for part in result_parts(call.result):
        if isinstance(part, Image) and media.picture(part) is not None:
            found += [Text(f"[a picture from the call {call.id}]"), part]
    return found


def _content(parts: tuple[Content, ...]) -> object:
    """Plain text where that suffices, since not every server reads lists."""
    shown = [_part(part) for part in parts]
    if all(part["type"] == "text" for part in shown):
        return "\n\n".join(str(part["text"]) for part in shown)
    return shown


def _part(part: Content) -> dict[str, object]:
    if isinstance(part, Image) and (found := media.picture(part)) is not None:
        url = found if isinstance(found, str) else f"data:{found.media_type};base64,{found.base64}"
        detail = {"detail": part.detail} if part.detail in {"auto", "low", "high"} else {}
        return {"type": "image_url", "image_url": {"url": url, **detail}}
    if isinstance(part, File) and (document := media.document(part)) is not None:
        data = f"data:application/pdf;base64,{document.base64}"
        return {"type": "file", "file": {"filename": clean(part.name) or "file.pdf", "file_data": data}}
    return {"type": "text", "text": _words(part)}


def _words(part: Content) -> str:
    if isinstance(part, Text):
        return part.text
    return (media.text_file(part) if isinstance(part, File) else None) or media.note(part)


def _reasoning_field(blocks: list[Block], server: str) -> str | None:
    """The field in which this server wants its reasoning back: the one in which it came."""
    for block in reversed(blocks):
        for part in block.parts if isinstance(block, Answered) else ():
            if isinstance(part, Reasoning) and _is_from(part, server) and part.opaque.get("field"):
                return part.opaque["field"]
    return REASONING_FIELDS.get(server)


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
        return scrub(msgspec.json.decode(part.opaque[key].encode("utf-8", "replace")))
    except (msgspec.DecodeError, ValueError, RecursionError):
        return None
