import json
import math
import subprocess
import sys
from collections.abc import AsyncIterator
from typing import Any

import pytest

from holdfast.model.errors import AuthFailed, BadReply, ProviderFailed, RateLimited, Refused, Unreachable
from holdfast.model.event import Usage
from holdfast.model.message import Reasoning, Text, ToolCall
from holdfast.model.provider import Delta, ModelReply, ModelRequest, ReasoningDelta, TextDelta, ToolSpec
from holdfast.providers.openai.provider import OpenAiProvider
from holdfast.providers.timeouts import RequestTimeouts
from holdfast.providers.well_formed import merge_deltas
from tests.fakes.openai_server import (
    OpenAiServer,
    break_off,
    call,
    chunk,
    error,
    fail,
    hang,
    say,
    stream,
    usage_chunk,
)
from tests.providers.messages import asking, called, message, model, result, user

KEY = "sk-very-secret-key-0123456789"
ids = iter(range(1_000_000))


@pytest.fixture
async def server() -> AsyncIterator[OpenAiServer]:
    async with OpenAiServer() as running:
        yield running


@pytest.fixture
async def provider(server: OpenAiServer) -> AsyncIterator[OpenAiProvider]:
    made = OpenAiProvider(KEY, server.url, new_id=lambda: f"made-{next(ids)}")
    yield made
    await made.close()


async def ask(provider: OpenAiProvider, request: ModelRequest | None = None) -> tuple[list[Delta], ModelReply]:
    *deltas, reply = [item async for item in provider.ask(request or asking(user("hi")))]
    assert isinstance(reply, ModelReply)
    return [delta for delta in deltas if not isinstance(delta, ModelReply)], reply


def calls(reply: ModelReply) -> list[ToolCall]:
    return [part for part in reply.parts if isinstance(part, ToolCall)]


def call_delta(index: int | None, id: str | None, name: str | None, arguments: object) -> dict[str, Any]:
    """A delta with a part of a call."""
    return {"tool_calls": [{"index": index, "id": id, "function": {"name": name, "arguments": arguments}}]}


async def test_a_text_is_streamed_and_counted(server: OpenAiServer, provider: OpenAiProvider) -> None:
    server.acts.append(say("Hello, you there."))

    deltas, reply = await ask(provider)

    assert list(merge_deltas(deltas)) == [TextDelta("Hello, you there.")]
    assert reply == ModelReply(
        parts=(Text("Hello, you there."),),
        model="gpt-fake-2026-01-01",
        finish="stop",
        usage=Usage(tokens_in=11, tokens_out=7, cache_read=5, reasoning=3),
    )


async def test_the_request_has_the_key_and_is_sent_once(server: OpenAiServer, provider: OpenAiProvider) -> None:
    server.acts.append(fail(500, error("boom", "server_error")))

    with pytest.raises(Unreachable):
        await ask(provider)

    assert len(server.requests) == 1
    assert server.headers[0]["authorization"] == f"Bearer {KEY}"


async def test_a_whole_turn_with_tools_is_accepted(server: OpenAiServer, provider: OpenAiProvider) -> None:
    said = user('use tool terminal {"command": "ls"}\nuse tool terminal {"command": "pwd"}')

    _, first = await ask(provider, asking(said))
    answered = [result(made.id, f"result of {made.id}") for made in calls(first)]
    _, second = await ask(provider, asking(said, model(*first.parts), *answered))

    assert [made.arguments for made in calls(first)] == ['{"command": "ls"}', '{"command": "pwd"}']
    assert first.finish == "tool_calls"
    assert second.parts == (Text(f"Done. result of {calls(first)[0].id} result of {calls(first)[1].id}"),)


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
async def test_reasoning_is_streamed_and_sent_back_in_its_field(
    server: OpenAiServer, provider: OpenAiProvider, field: str
) -> None:
    thought = chunk({field: "Let me see. "})
    server.acts.append(stream(thought, thought, chunk(call_delta(0, "c1", "terminal", "{}"), "tool_calls")))

    deltas, reply = await ask(provider)
    await ask(provider, asking(user("hi"), model(*reply.parts), result("c1")))

    assert list(merge_deltas(deltas)) == [ReasoningDelta("Let me see. Let me see. ")]
    assert server.requests[1]["messages"][2][field] == "Let me see. Let me see. "


async def test_the_same_reasoning_in_two_fields_is_read_once(server: OpenAiServer, provider: OpenAiProvider) -> None:
    server.acts.append(say("Hi.", before=({"reasoning_content": "hm", "reasoning": "hm"},)))

    deltas, _ = await ask(provider)

    assert deltas == [ReasoningDelta("hm"), TextDelta("Hi.")]


async def test_details_of_reasoning_are_joined_and_sent_back(server: OpenAiServer, provider: OpenAiProvider) -> None:
    pieces: list[dict[str, Any]] = [
        {"type": "reasoning.text", "index": 0, "text": "Let "},
        {"type": "reasoning.text", "index": 0, "text": "me.", "signature": None},
        {"type": "reasoning.text", "index": 0, "text": None, "signature": "sig"},
        {"type": "reasoning.encrypted", "index": 1, "data": "xyz"},
    ]
    before = tuple({"reasoning_details": [piece]} for piece in pieces)
    server.acts.append(say("Hi.", before=before))

    _, reply = await ask(provider)
    await ask(provider, asking(user("hi"), model(*reply.parts), user("go on")))

    assert server.requests[1]["messages"][2]["reasoning_details"] == [
        {"type": "reasoning.text", "index": 0, "text": "Let me.", "signature": "sig"},
        {"type": "reasoning.encrypted", "index": 1, "data": "xyz"},
    ]


async def test_extra_fields_of_a_call_are_sent_back_with_it(server: OpenAiServer, provider: OpenAiProvider) -> None:
    delta = call_delta(0, "c1", "terminal", "{}")
    delta["tool_calls"][0]["extra_content"] = {"google": {"thought_signature": "sig"}}
    server.acts.append(stream(chunk(delta), chunk(finish="tool_calls")))

    _, reply = await ask(provider)
    await ask(provider, asking(user("hi"), model(*reply.parts), result("c1")))

    sent = server.requests[1]["messages"][2]["tool_calls"][0]
    assert sent["extra_content"] == {"google": {"thought_signature": "sig"}}


async def test_reasoning_in_items_of_the_content_is_reasoning(server: OpenAiServer, provider: OpenAiProvider) -> None:
    items = [{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}, {"type": "text", "text": "Hi."}]
    server.acts.append(stream(chunk({"content": items}), chunk(finish="stop")))

    deltas, _ = await ask(provider)

    assert deltas == [ReasoningDelta("hm"), TextDelta("Hi.")]


async def test_two_calls_with_one_id_get_two(server: OpenAiServer, provider: OpenAiProvider) -> None:
    server.acts.append(call(("c1", "terminal", '{"a": 1}'), ("c1", "terminal", '{"a": 2}'), ("", "terminal", "{}")))

    _, reply = await ask(provider, asking(user("hi")))

    first, second, third = calls(reply)
    assert first.id == "c1"
    assert second.id.startswith("made-")
    assert third.id.startswith("made-")
    assert second.id != third.id


async def test_an_id_that_an_earlier_call_has_is_replaced(server: OpenAiServer, provider: OpenAiProvider) -> None:
    server.acts.append(call(("c1", "terminal", "{}")))

    _, reply = await ask(provider, asking(user("hi"), model(called("c1")), result("c1")))

    assert calls(reply)[0].id.startswith("made-")


async def test_calls_that_all_have_index_0_are_distinguished_by_their_ids(
    server: OpenAiServer, provider: OpenAiProvider
) -> None:
    pieces = [call_delta(0, "a", "x", '{"n": 1}'), call_delta(0, "b", "y", '{"n": '), call_delta(0, None, None, "2}")]
    server.acts.append(stream(*map(chunk, pieces), chunk(finish="tool_calls")))

    _, reply = await ask(provider)

    assert calls(reply) == [ToolCall("a", "x", '{"n": 1}'), ToolCall("b", "y", '{"n": 2}')]


async def test_calls_without_an_index_are_distinguished_by_their_names(
    server: OpenAiServer, provider: OpenAiProvider
) -> None:
    pieces = [
        call_delta(None, "a", "x", '{"n": '),
        call_delta(None, None, None, "1}"),
        call_delta(None, "b", "y", {"n": 2}),
    ]
    server.acts.append(stream(*map(chunk, pieces), chunk(finish="tool_calls")))

    _, reply = await ask(provider)

    assert calls(reply) == [ToolCall("a", "x", '{"n": 1}'), ToolCall("b", "y", '{"n": 2}')]


async def test_a_name_that_is_repeated_in_every_chunk_is_read_once(
    server: OpenAiServer, provider: OpenAiProvider
) -> None:
    pieces = [call_delta(0, "a", "x", '{"n"'), call_delta(0, "a", "x", ": 1}")]
    server.acts.append(stream(*map(chunk, pieces), chunk(finish="tool_calls")))

    _, reply = await ask(provider)

    assert calls(reply) == [ToolCall("a", "x", '{"n": 1}')]


async def test_arguments_that_are_not_json_are_kept_unchanged(server: OpenAiServer, provider: OpenAiProvider) -> None:
    server.acts.append(call(("c1", "terminal", '{"command": ls')))

    _, reply = await ask(provider)

    assert calls(reply) == [ToolCall("c1", "terminal", '{"command": ls')]


async def test_a_call_has_the_name_that_its_tool_has_here(server: OpenAiServer, provider: OpenAiProvider) -> None:
    server.acts.append(call(("c1", "mcp_files_read", "{}")))

    _, reply = await ask(provider, asking(user("hi"), tools=(ToolSpec("mcp.files.read", "", {}),)))

    assert calls(reply)[0].name == "mcp.files.read"


async def test_a_call_without_a_name_is_a_bad_reply(server: OpenAiServer, provider: OpenAiProvider) -> None:
    server.acts.append(call(("c1", "", "{}")))

    with pytest.raises(BadReply, match="without a name"):
        await ask(provider)


async def test_empty_arguments_are_an_empty_object_unless_the_reply_was_truncated(
    server: OpenAiServer, provider: OpenAiProvider
) -> None:
    server.acts += [call(("c1", "terminal", "")), call(("c1", "terminal", ""), finish="length")]

    _, whole = await ask(provider)
    _, cut = await ask(provider)

    assert (calls(whole)[0].arguments, whole.finish) == ("{}", "tool_calls")
    assert (calls(cut)[0].arguments, cut.finish) == ("", "length")


@pytest.mark.parametrize(
    ("finish", "ours"),
    [("stop", "stop"), ("tool_calls", "stop"), ("length", "length"), ("content_filter", "refused"), ("eos", "stop")],
)
async def test_the_finish_reason_matches_the_content(
    server: OpenAiServer, provider: OpenAiProvider, finish: str, ours: str
) -> None:
    server.acts.append(say("Some text.", finish=finish))

    _, reply = await ask(provider)

    assert reply.finish == ours


async def test_a_finish_reason_stop_after_calls_means_tool_calls(
    server: OpenAiServer, provider: OpenAiProvider
) -> None:
    server.acts.append(call(("c1", "terminal", "{}"), finish="stop"))

    _, reply = await ask(provider)

    assert reply.finish == "tool_calls"


async def test_a_refusal_is_a_reply_with_its_text(server: OpenAiServer, provider: OpenAiProvider) -> None:
    server.acts.append(stream(chunk({"refusal": "I will not."}), chunk(finish="stop")))

    _, reply = await ask(provider)

    assert (reply.parts, reply.finish) == ((Text("I will not."),), "refused")


async def test_a_refusal_without_text_is_a_failure(server: OpenAiServer, provider: OpenAiProvider) -> None:
    server.acts.append(stream(chunk(finish="content_filter")))

    with pytest.raises(Refused):
        await ask(provider)


async def test_a_token_limit_used_up_by_reasoning_is_reported_as_such(
    server: OpenAiServer, provider: OpenAiProvider
) -> None:
    server.acts.append(stream(chunk({"reasoning": "hm"}), chunk(finish="length")))

    _, reply = await ask(provider)

    assert reply.finish == "length"
    assert [type(part) for part in reply.parts] == [Reasoning]


EMPTY = {
    "nothing": stream(chunk(finish="stop")),
    "blank": stream(chunk({"content": " \n"}), chunk(finish="stop")),
    "only a thought": stream(chunk({"reasoning": "hm"}), chunk(finish="stop")),
    "calls that are none": stream(chunk({"tool_calls": []}), chunk(finish="tool_calls")),
}


@pytest.mark.parametrize("act", EMPTY.values(), ids=EMPTY)
async def test_an_empty_reply_is_a_bad_reply(server: OpenAiServer, provider: OpenAiProvider, act: Any) -> None:
    server.acts.append(act)

    with pytest.raises(BadReply, match="empty"):
        await ask(provider)


CUT = {
    "before anything": stream(done=False),
    "with an end": stream(chunk({"content": "half"})),
    "without an end": stream(chunk({"content": "half"}), done=False),
    "in mid-call": stream(chunk(call_delta(0, "c1", "terminal", '{"comm')), done=False),
    "no JSON": stream(chunk({"content": "half"}), "{never"),
    "no chunk": stream("[1, 2]"),
    "nonsense": stream(chunk({"content": 5})),
    "an odd thought": stream(chunk({"reasoning": {"odd": 1}, "reasoning_details": ["odd"]})),
}


@pytest.mark.parametrize("act", CUT.values(), ids=CUT)
async def test_an_incomplete_reply_is_a_bad_reply(server: OpenAiServer, provider: OpenAiProvider, act: Any) -> None:
    server.acts.append(act)

    with pytest.raises(BadReply):
        await ask(provider)


async def test_a_connection_that_breaks_during_a_call_is_a_failure(
    server: OpenAiServer, provider: OpenAiProvider
) -> None:
    server.acts.append(break_off(chunk(call_delta(0, "c1", "terminal", '{"comm'))))

    with pytest.raises(Unreachable):
        await ask(provider)


async def test_a_connection_that_breaks_after_the_end_of_the_reply_loses_nothing(
    server: OpenAiServer, provider: OpenAiProvider
) -> None:
    server.acts.append(break_off(chunk({"content": "All."}), chunk(finish="stop")))

    _, reply = await ask(provider)

    assert reply.parts == (Text("All."),)


async def test_counts_in_every_chunk_are_totals(server: OpenAiServer, provider: OpenAiProvider) -> None:
    odd = {"prompt_tokens": 3, "completion_tokens": "many", "prompt_cache_hit_tokens": 2, "cost": 0.25}
    server.acts.append(stream(usage_chunk({"prompt_tokens": 1}), chunk({"content": "Hi."}, "stop"), usage_chunk(odd)))

    _, reply = await ask(provider)

    assert reply.usage == Usage(tokens_in=3, cache_read=2, cost=0.25)


@pytest.mark.parametrize(
    "number", [True, "0.5", -math.inf, math.inf, math.nan, 10**400, [1]], ids=lambda one: str(one)[:9]
)
async def test_numbers_that_count_nothing_lose_no_reply(
    server: OpenAiServer, provider: OpenAiProvider, number: object
) -> None:
    counted = usage_chunk({"prompt_tokens": 3, "completion_tokens": number, "cost": number})
    server.acts.append(stream(chunk({"content": "Hi."}, "stop"), counted))

    _, reply = await ask(provider)

    assert (reply.parts, reply.usage) == ((Text("Hi."),), Usage(tokens_in=3))


@pytest.mark.parametrize("chunks", [[], [chunk({"content": "half"})]], ids=["from the start", "in mid-reply"])
async def test_a_provider_that_hangs_is_unreachable(server: OpenAiServer, chunks: list[object]) -> None:
    server.acts.append(hang(server, *chunks))
    provider = OpenAiProvider(KEY, server.url, limits=RequestTimeouts(first_seconds=1.0, idle_seconds=0.2))

    with pytest.raises(Unreachable, match="sent nothing"):
        await ask(provider)

    await server.left.wait()
    await provider.close()


async def test_an_address_without_a_server_is_unreachable() -> None:
    async with OpenAiServer() as gone:
        url = gone.url
    provider = OpenAiProvider(KEY, url)

    with pytest.raises(Unreachable, match="connection"):
        await ask(provider)

    await provider.close()


async def test_a_rate_limit_has_the_retry_time(server: OpenAiServer, provider: OpenAiProvider) -> None:
    server.acts.append(fail(429, error("slow down", "requests", "rate_limit_exceeded"), {"retry-after": "7"}))

    with pytest.raises(RateLimited) as raised:
        await ask(provider)

    assert raised.value.retry_after == 7


async def test_an_error_inside_a_stream_is_distinguished_too(server: OpenAiServer, provider: OpenAiProvider) -> None:
    server.acts += [
        stream(chunk({"content": "half"}), error("Overloaded", "server_error")),
        stream(chunk({"content": "half"}), {"error": {"code": 429, "message": "slow down"}}),
    ]

    with pytest.raises(Unreachable):
        await ask(provider)
    with pytest.raises(RateLimited):
        await ask(provider)


@pytest.mark.parametrize("status", [400, 401, 403, 404, 429, 500])
async def test_no_failure_shows_the_key_nor_does_its_cause(
    server: OpenAiServer, provider: OpenAiProvider, status: int
) -> None:
    server.acts.append(fail(status, error(f"Incorrect API key provided: {KEY}", "auth")))

    with pytest.raises(ProviderFailed) as raised:
        await ask(provider)

    assert KEY not in f"{raised.value} {raised.value!r} {raised.value.__cause__} {raised.value.__cause__!r}"
    assert raised.value.__cause__ is not None


@pytest.mark.parametrize("key", ["", "  ", "sk-\nnewline", "sk-ключ"])
async def test_a_malformed_key_is_refused_before_anything_is_sent(key: str) -> None:
    with pytest.raises(AuthFailed) as raised:
        await ask(OpenAiProvider(key))

    assert not key.strip() or key.strip() not in str(raised.value)


@pytest.mark.parametrize("url", ["", "localhost:8080", "http://", "http://[::1", "http://me:secret@host:port/"])
async def test_an_invalid_url_is_reported_without_showing_it(url: str) -> None:
    with pytest.raises(Unreachable, match="base_url") as raised:
        await ask(OpenAiProvider(KEY, url))

    assert "secret" not in str(raised.value)


async def test_a_self_hosted_server_needs_no_key(server: OpenAiServer) -> None:
    provider = OpenAiProvider("", server.url)

    _, reply = await ask(provider)

    assert reply.finish == "stop"
    await provider.close()


async def test_images_and_unusual_text_reach_the_server(server: OpenAiServer, provider: OpenAiProvider) -> None:
    odd = message("tool")

    await ask(provider, asking(model("lone \ud800"), odd, user("\0")))

    assert [said["content"] for said in server.requests[0]["messages"][2:]] == ["lone \ufffd", "\ufffd"]


@pytest.mark.parametrize(
    ("model", "tokens"),
    [("gpt-4.1-mini", 1_047_576), ("openai/gpt-4o", 128_000), ("o3", 200_000), ("llama-3", None)],
)
def test_the_window_of_known_models_is_known(model: str, tokens: int | None) -> None:
    assert OpenAiProvider("").window(model) == tokens


@pytest.mark.process
def test_the_http_library_is_imported_only_when_first_used() -> None:
    program = """
import json, sys
import holdfast.providers.retry
from holdfast.providers.registry import create_provider
create_provider("openai", api_key="k"), create_provider("anthropic", api_key="k")
print(json.dumps(sorted({"aiohttp", "openai", "anthropic", "httpx", "httpx2", "pydantic"} & sys.modules.keys())))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert json.loads(done.stdout) == []
