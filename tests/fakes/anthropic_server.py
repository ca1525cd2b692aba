"""A fake of the Anthropic API on a loopback port, written from its public reference; it validates requests.

It binds thinking to the content before it, as newer models do: its signature is a hash of the system text,
the tools and the messages, and a block that is sent back after other content is refused.
"""

import base64
import hashlib
import json
import re
from typing import Any

from tests.fakes.openai_server import Act, Exchange, HttpServer

Json = dict[str, Any]
NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
ID = re.compile(r"[a-zA-Z0-9_-]+")
START_USAGE = {
    "input_tokens": 11,
    "cache_read_input_tokens": 100,
    "cache_creation_input_tokens": 20,
    "output_tokens": 1,
}
END_USAGE = {"output_tokens": 7, "output_tokens_details": {"thinking_tokens": 3}}
MAGIC = {
    "image/png": b"\x89PNG",
    "image/jpeg": b"\xff\xd8\xff",
    "image/gif": b"GIF8",
    "image/webp": b"RIFF",
}


class AnthropicServer(HttpServer):
    path = "/v1/messages"

    @property
    def url(self) -> str:
        return f"http://{self.host}"

    def complaint(self, body: Json) -> str | None:
        return complaint(body)

    async def refuse(self, exchange: Exchange, complaint: str) -> None:
        await exchange.answer(400, error("invalid_request_error", complaint))

    async def usual(self, exchange: Exchange) -> None:
        await say("Hello.")(exchange)


def error(kind: str, message: str) -> Json:
    return {"type": "error", "error": {"type": kind, "message": message}, "request_id": "req_1"}


def start() -> Json:
    message: Json = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "claude-fake-1-20260101",
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": START_USAGE,
    }
    return {"type": "message_start", "message": message}


def opened(index: int, block: Json) -> Json:
    return {"type": "content_block_start", "index": index, "content_block": block}


def more(index: int, delta: Json) -> Json:
    return {"type": "content_block_delta", "index": index, "delta": delta}


def closed(index: int) -> Json:
    return {"type": "content_block_stop", "index": index}


def stopped(reason: str) -> list[Json]:
    delta = {"stop_reason": reason, "stop_sequence": None}
    return [{"type": "message_delta", "delta": delta, "usage": END_USAGE}, {"type": "message_stop"}]


def text_block(index: int, text: str) -> list[Json]:
    pieces = [more(index, {"type": "text_delta", "text": piece}) for piece in re.findall(r"\s*\S+\s*|\s+", text)]
    return [opened(index, {"type": "text", "text": ""}), *pieces, closed(index)]


def tool_block(index: int, id: str, name: str, text: str) -> list[Json]:
    halves = (text[: len(text) // 2], text[len(text) // 2 :])
    pieces = [more(index, {"type": "input_json_delta", "partial_json": piece}) for piece in halves if piece]
    return [opened(index, {"type": "tool_use", "id": id, "name": name, "input": {}}), *pieces, closed(index)]


def thinking_block(index: int, text: str, signature: str) -> list[Json]:
    return [
        opened(index, {"type": "thinking", "thinking": "", "signature": ""}),
        more(index, {"type": "thinking_delta", "thinking": text}),
        more(index, {"type": "signature_delta", "signature": signature}),
        closed(index),
    ]


def stream(*events: Json) -> Act:
    async def act(exchange: Exchange) -> None:
        await _send(exchange, *events)
        await exchange.end()

    return act


def say(text: str, *, finish: str = "end_turn") -> Act:
    return stream(start(), {"type": "ping"}, *text_block(0, text), *stopped(finish))


def call(*made: tuple[str, str, str], text: str = "", finish: str = "tool_use") -> Act:
    said = text_block(0, text) if text else []
    calls = [event for n, parts in enumerate(made, 1) for event in tool_block(n, *parts)]
    return stream(start(), *said, *calls, *stopped(finish))


def think(thought: str, *then: list[Json], finish: str = "end_turn") -> Act:
    """Stream thinking with a signature for this request, and redacted thinking; then these blocks."""

    async def act(exchange: Exchange) -> None:
        signature = binding(exchange.body, exchange.body["messages"])
        redacted = [opened(1, {"type": "redacted_thinking", "data": f"sealed-{signature}"}), closed(1)]
        rest = [event for block in then for event in block]
        await _send(exchange, start(), *thinking_block(0, thought, signature), *redacted, *rest, *stopped(finish))
        await exchange.end()

    return act


def break_off(*events: Json) -> Act:
    async def act(exchange: Exchange) -> None:
        await _send(exchange, *events)
        await exchange.cut()

    return act


def hang(server: HttpServer, *events: Json) -> Act:
    async def act(exchange: Exchange) -> None:
        if events:
            await _send(exchange, *events)
        await exchange.until_left()
        server.left.set()

    return act


async def _send(exchange: Exchange, *events: Json) -> None:
    exchange.begin()
    for event in events:
        await exchange.event(event, event["type"])


def binding(body: Json, before: list[Json]) -> str:
    """A hash of everything before a thinking block; cache breakpoints do not count."""
    bound = _unmarked([body.get("system"), body.get("tools"), before])
    return hashlib.sha256(json.dumps(bound, sort_keys=True).encode()).hexdigest()


def _unmarked(value: object) -> object:
    if isinstance(value, list):
        return [_unmarked(item) for item in value]
    if isinstance(value, dict):
        return {key: _unmarked(item) for key, item in value.items() if key != "cache_control"}
    return value


def complaint(body: Json) -> str | None:
    """What the Messages API finds wrong with a request; None if nothing."""
    try:
        _check(body)
    except AssertionError as e:
        return str(e)
    return None


def _check(body: Json) -> None:
    for name in ("temperature", "top_p", "top_k"):
        assert name not in body, f"{name}: Extra inputs are not permitted"
    assert isinstance(body.get("max_tokens"), int) and body["max_tokens"] >= 1, "max_tokens: Field required"
    assert body.get("messages"), "messages: at least one message is required"
    assert json.dumps(body).count('"cache_control"') <= 4, "A maximum of 4 blocks with cache_control may be provided"
    for block in body.get("system", []):
        _check_text(block)
    _check_tools(body)
    seen: set[str] = set()
    due: list[str] = []
    for n, message in enumerate(body["messages"]):
        where = f"messages.{n}"
        assert message["role"] == ("assistant" if n % 2 else "user"), f"{where}: roles must alternate"
        assert isinstance(message["content"], list) and message["content"], f"{where}: content must not be empty"
        if message["role"] == "user":
            _check_user(message["content"], due, where)
        else:
            due = _check_answer(body, n, where)
            assert not seen & set(due) and len(set(due)) == len(due), f"{where}: `tool_use` ids must be unique"
            seen |= set(due)
    assert body["messages"][-1]["role"] == "user", (
        "This model does not support assistant message prefill. The conversation must end with a user message."
    )


def _check_tools(body: Json) -> None:
    tools = body.get("tools", [])
    assert tools or "tools" not in body, "tools: must not be empty"
    names = [tool["name"] for tool in tools]
    assert len(set(names)) == len(names), "tools: Tool names must be unique."
    assert tools or '"tool_use"' not in json.dumps(body["messages"]), "calls are shown, but no tools are defined"
    for tool in tools:
        assert NAME.fullmatch(tool["name"]), "tools: name: String should match pattern"
        assert tool["input_schema"]["type"] == "object", "tools: input_schema: type must be object"
        assert not {"oneOf", "anyOf", "allOf"} & tool["input_schema"].keys(), "input_schema: no alternatives at the top"


def _check_user(content: list[Json], due: list[str], where: str) -> None:
    results = [block["tool_use_id"] for block in content if block["type"] == "tool_result"]
    leading = [block.get("tool_use_id") for block in content[: len(due)]]
    assert sorted(results) == sorted(due) and results == leading, (
        f"{where}: `tool_use` ids were found without `tool_result` blocks immediately after, or results without calls"
    )
    for block in content:
        if block["type"] != "tool_result":
            _check_content(block)
            continue
        assert isinstance(block["content"], list) and block["content"], f"{where}: content cannot be empty"
        for inner in block["content"]:
            _check_content(inner)
            assert not block.get("is_error") or inner["type"] == "text", "all content must be type text if is_error"


def _check_answer(body: Json, n: int, where: str) -> list[str]:
    content = body["messages"][n]["content"]
    assert "thinking" not in content[-1]["type"], f"{where}: The final block in an assistant message cannot be thinking"
    calls = []
    for block in content:
        if block["type"] == "tool_use":
            assert ID.fullmatch(block["id"]), f"{where}: tool_use.id: String should match pattern"
            assert NAME.fullmatch(block["name"]), f"{where}: tool_use.name: String should match pattern"
            assert isinstance(block["input"], dict), f"{where}: tool_use.input: Input should be a valid dictionary"
            calls.append(block["id"])
        elif block["type"] == "thinking":
            assert block["signature"] == binding(body, body["messages"][:n]), f"{where}: Invalid `signature`"
        elif block["type"] == "redacted_thinking":
            assert block["data"] == f"sealed-{binding(body, body['messages'][:n])}", f"{where}: Invalid `data`"
        else:
            _check_text(block)
    return calls


def _check_content(block: Json) -> None:
    if block["type"] == "image":
        source = block["source"]
        if source["type"] == "url":
            assert re.match(r"https?://\S+$", source["url"]), "image: invalid url"
        else:
            content = base64.b64decode(source["data"], validate=True)
            assert content.startswith(MAGIC[source["media_type"]]), "the image appears to be of another type"
    elif block["type"] == "document":
        assert base64.b64decode(block["source"]["data"], validate=True).startswith(b"%PDF"), "the PDF is not valid"
    else:
        _check_text(block)


def _check_text(block: Json) -> None:
    assert block["type"] == "text", f"unexpected block {block['type']}"
    assert block["text"].strip(), "messages: text content blocks must contain non-whitespace text"
