"""The official SDKs as oracles: what we send equals what they send, what we read equals what they read."""

import itertools
import json
from collections.abc import Callable
from typing import Any

import anthropic
import httpx2
import openai
import pytest
from hypothesis import HealthCheck, given, settings

from holdfast.model.errors import ProviderFailed
from holdfast.model.provider import ModelRequest
from holdfast.providers.anthropic.stream import AnthropicReply
from holdfast.providers.openai.request import OpenAiPrefix
from holdfast.providers.openai.stream import OpenAiReply
from holdfast.providers.reply_builder import CallIdAllocator
from holdfast.providers.sse_parser import SseParser
from tests.providers.messages import anthropic_body, asking, openai_body, user
from tests.providers.test_render_properties import requests

Json = dict[str, Any]


class RecordingTransport:
    """A transport for an SDK: records the request, and answers with these bytes."""

    def __init__(self, answer: bytes = b"") -> None:
        self.sent = b""
        self.client = httpx2.AsyncClient(transport=httpx2.MockTransport(self._handle))
        self._answer = answer

    def _handle(self, request: httpx2.Request) -> httpx2.Response:
        self.sent = request.content
        return httpx2.Response(200, headers={"content-type": "text/event-stream"}, content=self._answer)


async def openai_chunks(transport: RecordingTransport, body: Any) -> list[object]:
    client = openai.AsyncOpenAI(api_key="k", base_url="http://model.example/v1", http_client=transport.client)
    stream = await client.chat.completions.create(**body)
    return [piece.to_dict(warnings=False) if isinstance(piece, openai.BaseModel) else piece async for piece in stream]


async def anthropic_events(transport: RecordingTransport, body: Any) -> list[object]:
    client = anthropic.AsyncAnthropic(api_key="k", base_url="http://model.example", http_client=transport.client)
    stream = await client.messages.create(**body)
    return [piece.to_dict(warnings=False) async for piece in stream]


SDKS = {
    "openai": (openai_body, openai_chunks),
    "anthropic": (anthropic_body, anthropic_events),
}


@pytest.mark.slow
@pytest.mark.parametrize("vendor", SDKS)
@settings(deadline=None, suppress_health_check=list(HealthCheck))
@given(request=requests)
async def test_our_request_body_is_the_one_that_the_sdk_sends(vendor: str, request: ModelRequest) -> None:
    render, read_with_sdk = SDKS[vendor]
    body, transport = render(request), RecordingTransport()

    await read_with_sdk(transport, body)

    assert body == json.loads(transport.sent)


def chunk(finish: str | None = None, /, **delta: object) -> Json:
    return {
        "id": "chatcmpl-9",
        "object": "chat.completion.chunk",
        "created": 1_794_000_000,
        "model": "model-2026",
        "system_fingerprint": "fp_1",
        "choices": [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}],
    }


def calls(*made: Json) -> Json:
    return chunk(tool_calls=list(made))


USAGE = {
    "prompt_tokens": 90,
    "completion_tokens": 12,
    "total_tokens": 102,
    "prompt_tokens_details": {"cached_tokens": 64, "audio_tokens": 0},
    "completion_tokens_details": {"reasoning_tokens": 8, "accepted_prediction_tokens": 0},
    "cost": 0.0125,
}
OPENAI_STREAMS: dict[str, list[object]] = {
    "text": [chunk(role="assistant", content=""), chunk(content="Hello"), chunk(content=" you"), chunk("stop")],
    "a count at the end": [chunk(content="Hi"), chunk("stop"), {"choices": [], "usage": USAGE, "model": "m"}],
    "a count with each chunk": [chunk(content="Hi") | {"usage": USAGE}, chunk("stop") | {"usage": USAGE}],
    "filter results first": [
        {"choices": [], "prompt_filter_results": [{"prompt_index": 0}]},
        chunk("stop", content="a"),
    ],
    "null content": [chunk(role="assistant", content=None), chunk(content="Hi", refusal=None), chunk("stop")],
    "a refusal": [chunk(role="assistant", refusal=""), chunk(refusal="I cannot"), chunk("stop")],
    "a call": [
        calls({"index": 0, "id": "call_1", "type": "function", "function": {"name": "terminal", "arguments": ""}}),
        calls({"index": 0, "function": {"arguments": '{"command":'}}),
        calls({"index": 0, "function": {"arguments": ' "ls"}'}}),
        chunk("tool_calls"),
    ],
    "two calls": [
        calls({"index": 0, "id": "a", "function": {"name": "terminal", "arguments": "{}"}}),
        calls({"index": 1, "id": "b", "function": {"name": "terminal", "arguments": "{}"}}),
        chunk("tool_calls"),
    ],
    "a call in one chunk": [
        calls({"id": "a", "type": "function", "function": {"name": "terminal", "arguments": {"command": "ls"}}}),
        chunk("tool_calls"),
    ],
    "a call with a signature": [
        calls(
            {"index": 0, "id": "a", "function": {"name": "x", "arguments": "{}"}, "extra_content": {"google": {"s": 1}}}
        ),
        chunk("stop"),
    ],
    "reasoning_content": [chunk(reasoning_content="hm", content=None), chunk(content="Yes."), chunk("stop")],
    "reasoning with details": [
        chunk(reasoning="hm", reasoning_details=[{"type": "reasoning.text", "index": 0, "text": "hm"}]),
        chunk(content="Yes.", reasoning_details=[{"type": "reasoning.encrypted", "index": 1, "data": "xyz"}]),
        chunk("stop"),
    ],
    "thoughts as content": [
        chunk(content=[{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}]),
        chunk("stop", content=[{"type": "text", "text": "Yes."}]),
    ],
    "half a surrogate pair": [chunk(content="\ud83d"), chunk(content="\ude00 and \ud800"), chunk("stop")],
    "characters of all kinds": [chunk(content='äöü "quoted" \\ \u2028 \x7f 漢字 😀\n\t'), chunk("stop")],
    "numbers of all kinds": [
        chunk("stop", content="a") | {"usage": {"prompt_tokens": 1e3, "completion_tokens": 10**20}}
    ],
    "cut by the limit": [chunk(content="half"), chunk("length")],
    "filtered": [chunk(content="half"), chunk("content_filter")],
    "several choices": [chunk("stop", content="a") | {"choices": [*chunk("stop", content="a")["choices"]] * 2}],
    "an empty reply": [chunk("stop")],
    "an unknown finish": [chunk("eos", content="a")],
    "no finish": [chunk(content="half")],
    "unknown fields": [
        chunk("stop", content="a", audio={"id": "x"}, annotations=[]) | {"service_tier": "x", "x_new": {}}
    ],
    "text that is a number": [chunk(content=5)],
    "a list": [[1, 2]],
}


def usage(**counts: object) -> Json:
    return {"input_tokens": 21, "output_tokens": 1, "cache_read_input_tokens": 100, **counts}


def start() -> Json:
    message = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "content": [],
        "model": "claude-x",
        "stop_reason": None,
    }
    return {"type": "message_start", "message": {**message, "stop_sequence": None, "usage": usage()}}


def block(index: int, content: Json, *deltas: Json) -> list[Json]:
    more = [{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas]
    opened = {"type": "content_block_start", "index": index, "content_block": content}
    return [opened, *more, {"type": "content_block_stop", "index": index}]


def stop(reason: str, **counts: object) -> list[Json]:
    delta = {"stop_reason": reason, "stop_sequence": None}
    return [
        {"type": "message_delta", "delta": delta, "usage": {"output_tokens": 15, **counts}},
        {"type": "message_stop"},
    ]


def text(*pieces: str, index: int = 0) -> list[Json]:
    return block(index, {"type": "text", "text": ""}, *({"type": "text_delta", "text": piece} for piece in pieces))


TOOL = {"type": "tool_use", "id": "toolu_1", "name": "terminal", "input": {}}
THOUGHT = {"type": "thinking", "thinking": "", "signature": ""}
ANTHROPIC_STREAMS: dict[str, list[Json]] = {
    "text": [start(), {"type": "ping"}, *text("Hello", " you"), *stop("end_turn")],
    "a call": [
        start(),
        *text("Let me look."),
        *block(
            1, TOOL, *({"type": "input_json_delta", "partial_json": part} for part in ("", '{"comm', 'and": "ls"}'))
        ),
        *stop("tool_use"),
    ],
    "thinking": [
        start(),
        *block(
            0, THOUGHT, {"type": "thinking_delta", "thinking": "hm"}, {"type": "signature_delta", "signature": "EqQ="}
        ),
        *block(1, {"type": "redacted_thinking", "data": "abc"}),
        *text("Yes.", index=2),
        *stop("end_turn", output_tokens_details={"thinking_tokens": 9}),
    ],
    "a search of the server": [
        start(),
        *block(0, {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {}}),
        *block(1, {"type": "web_search_tool_result", "tool_use_id": "s1", "content": []}),
        *text("Found.", index=2),
        *stop("end_turn"),
    ],
    "a citation": [
        start(),
        *block(
            0,
            {"type": "text", "text": "", "citations": []},
            {"type": "text_delta", "text": "So."},
            {"type": "citations_delta", "citation": {"type": "char_location", "cited_text": "x", "document_index": 0}},
        ),
        *stop("end_turn"),
    ],
    "characters of all kinds": [start(), *text('äöü "q" \\ \u2028 漢字 😀', "\ud83d", "\ude00"), *stop("end_turn")],
    "cut by the limit": [start(), *text("half"), *stop("max_tokens")],
    "a refusal": [start(), *text("I will not."), *stop("refusal")],
    "a pause": [start(), *text("So far."), *stop("pause_turn")],
    "later counts": [start(), *text("a"), *stop("end_turn", input_tokens=30, cache_creation_input_tokens=4)],
    "an empty reply": [start(), *stop("end_turn")],
    "no end": [start(), *text("half")],
}


def allocator(request: ModelRequest) -> CallIdAllocator:
    made = itertools.count(1)
    return CallIdAllocator(OpenAiPrefix.of(request, "s"), lambda: f"made-{next(made)}", "the model")


def openai_reply(request: ModelRequest) -> OpenAiReply:
    return OpenAiReply(request, server="s", who="the model", call_ids=allocator(request))


def anthropic_reply(request: ModelRequest) -> AnthropicReply:
    return AnthropicReply(request, server="s", prefix="p", who="the model", call_ids=allocator(request))


def assemble(reply: OpenAiReply | AnthropicReply, events: list[bytes]) -> object:
    """The deltas and the reply, or its error."""
    deltas: list[object] = []
    try:
        for data in events:
            deltas += reply.add(data)
        return deltas, reply.reply()
    except ProviderFailed as e:
        return deltas, type(e), str(e)


def encoded(events: list[Any], *, named: bool) -> bytes:
    lines = [(f"event: {event['type']}\n" if named else "") + f"data: {json.dumps(event)}\n\n" for event in events]
    return "".join(lines).encode() + (b"" if named else b"data: [DONE]\n\n")


@pytest.mark.parametrize("events", OPENAI_STREAMS.values(), ids=OPENAI_STREAMS)
async def test_our_reply_is_the_one_that_openais_sdk_reads(events: list[Any]) -> None:
    request, stream = asking(user("hi")), encoded(events, named=False)
    chunks = await openai_chunks(RecordingTransport(stream), openai_body(request))

    ours = [event.data for event in SseParser().feed(stream)][:-1]

    assert assemble(openai_reply(request), ours) == assemble(openai_reply(request), as_bytes(chunks))


@pytest.mark.parametrize("events", ANTHROPIC_STREAMS.values(), ids=ANTHROPIC_STREAMS)
async def test_our_reply_is_the_one_that_anthropics_sdk_reads(events: list[Any]) -> None:
    request, stream = asking(user("hi")), encoded(events, named=True)
    read = await anthropic_events(RecordingTransport(stream), anthropic_body(request))

    ours = [event.data for event in SseParser().feed(stream)]

    assert assemble(anthropic_reply(request), ours) == assemble(anthropic_reply(request), as_bytes(read))


def as_bytes(events: list[object]) -> list[bytes]:
    dump: Callable[[object], str] = json.dumps
    return [dump(event).encode() for event in events]
