import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from holdfast.model.errors import (
    AuthFailed,
    BadReply,
    ContextTooLong,
    ProviderFailed,
    RateLimited,
    Refused,
    Unreachable,
)
from holdfast.model.event import Usage
from holdfast.model.message import Message, Text, ToolCall
from holdfast.model.provider import Delta, ModelReply, ModelRequest, ReasoningDelta, TextDelta
from holdfast.providers.anthropic.provider import AnthropicProvider
from holdfast.providers.timeouts import RequestTimeouts
from holdfast.providers.well_formed import merge_deltas
from tests.fakes.anthropic_server import (
    AnthropicServer,
    break_off,
    call,
    closed,
    error,
    hang,
    more,
    opened,
    say,
    start,
    stopped,
    stream,
    text_block,
    think,
    tool_block,
)
from tests.fakes.openai_server import fail
from tests.providers.messages import asking, model, result, user

KEY = "sk-ant-very-secret-key-0123456789"


@pytest.fixture
async def server() -> AsyncIterator[AnthropicServer]:
    async with AnthropicServer() as running:
        yield running


@pytest.fixture
async def provider(server: AnthropicServer) -> AsyncIterator[AnthropicProvider]:
    made = AnthropicProvider(KEY, server.url)
    yield made
    await made.close()


async def ask(provider: AnthropicProvider, request: ModelRequest | None = None) -> tuple[list[Delta], ModelReply]:
    *deltas, reply = [item async for item in provider.ask(request or asking(user("hi")))]
    assert isinstance(reply, ModelReply)
    return [delta for delta in deltas if not isinstance(delta, ModelReply)], reply


def calls(reply: ModelReply) -> list[ToolCall]:
    return [part for part in reply.parts if isinstance(part, ToolCall)]


async def test_a_text_is_streamed_and_counted(server: AnthropicServer, provider: AnthropicProvider) -> None:
    server.acts.append(say("Hello, you."))

    deltas, reply = await ask(provider)

    assert list(merge_deltas(deltas)) == [TextDelta("Hello, you.")]
    assert reply == ModelReply(
        parts=(Text("Hello, you."),),
        model="claude-fake-1-20260101",
        finish="stop",
        usage=Usage(tokens_in=131, tokens_out=7, cache_read=100, cache_write=20, reasoning=3),
    )


async def test_the_request_has_the_key_and_is_sent_once(server: AnthropicServer, provider: AnthropicProvider) -> None:
    server.acts.append(fail(529, error("overloaded_error", "Overloaded")))

    with pytest.raises(Unreachable):
        await ask(provider)

    assert len(server.requests) == 1
    assert KEY in (server.headers[0].get("authorization", "") + server.headers[0].get("x-api-key", ""))


async def test_a_turn_with_thinking_and_tools_is_sent_back_unchanged(
    server: AnthropicServer, provider: AnthropicProvider
) -> None:
    server.acts += [
        think(
            "Which files?",
            text_block(2, "Let me look."),
            tool_block(3, "toolu_1", "terminal", '{"command": "ls"}'),
            finish="tool_use",
        ),
        think("Three.", text_block(2, "There are three.")),
    ]
    said: list[Message] = [user("how many files?")]

    deltas, first = await ask(provider, asking(*said))
    said += [model(*first.parts), result("toolu_1")]
    _, second = await ask(provider, asking(*said))
    said += [model(*second.parts), user("thanks")]
    await ask(provider, asking(*said))

    assert deltas[0] == ReasoningDelta("Which files?")
    assert (first.finish, calls(first)) == ("tool_calls", [ToolCall("toolu_1", "terminal", '{"command": "ls"}')])
    kinds = [[block["type"] for block in sent["content"]] for sent in server.requests[2]["messages"]]
    assert kinds[1] == ["thinking", "redacted_thinking", "text", "tool_use"]
    assert kinds[3] == ["thinking", "redacted_thinking", "text"]


async def test_thinking_that_the_vendor_would_no_longer_accept_is_not_sent(
    server: AnthropicServer, provider: AnthropicProvider
) -> None:
    server.acts.append(think("hm", text_block(2, "Yes.")))
    _, reply = await ask(provider, asking(user("a"), user("b")))

    _, after_compaction = await ask(provider, asking(user("a summary"), model(*reply.parts), user("c")))

    assert after_compaction.finish == "stop"
    assert [block["type"] for block in server.requests[1]["messages"][1]["content"]] == ["text"]


async def test_a_call_whose_input_arrives_at_once_is_read(server: AnthropicServer, provider: AnthropicProvider) -> None:
    block = {"type": "tool_use", "id": "t1", "name": "terminal", "input": {"command": "ls"}}
    server.acts.append(stream(start(), opened(0, block), closed(0), *stopped("tool_use")))

    _, reply = await ask(provider)

    assert calls(reply) == [ToolCall("t1", "terminal", '{"command": "ls"}')]


async def test_calls_get_unique_ids_and_arguments_are_kept_unchanged(
    server: AnthropicServer, provider: AnthropicProvider
) -> None:
    server.acts.append(call(("t1", "terminal", '{"a'), ("t1", "terminal", ""), ("", "terminal", "{}"), text="So."))

    _, reply = await ask(provider)

    first, second, third = calls(reply)
    assert [made.arguments for made in (first, second, third)] == ['{"a', "{}", "{}"]
    assert len({first.id, second.id, third.id, ""}) == 4


async def test_a_call_without_a_name_is_a_bad_reply(server: AnthropicServer, provider: AnthropicProvider) -> None:
    server.acts.append(call(("t1", "", "{}")))

    with pytest.raises(BadReply, match="without a name"):
        await ask(provider)


@pytest.mark.parametrize(
    ("reason", "finish"),
    [
        ("end_turn", "stop"),
        ("stop_sequence", "stop"),
        ("pause_turn", "stop"),
        ("tool_use", "stop"),
        ("max_tokens", "length"),
        ("model_context_window_exceeded", "length"),
        ("refusal", "refused"),
    ],
)
async def test_the_finish_reason_matches_the_content(
    server: AnthropicServer, provider: AnthropicProvider, reason: str, finish: str
) -> None:
    server.acts.append(say("Some text.", finish=reason))

    _, reply = await ask(provider)

    assert reply.finish == finish


async def test_a_call_truncated_by_the_limit_keeps_what_was_received(
    server: AnthropicServer, provider: AnthropicProvider
) -> None:
    server.acts.append(call(("t1", "terminal", '{"comm'), ("t2", "terminal", ""), finish="max_tokens"))

    _, reply = await ask(provider)

    assert reply.finish == "length"
    assert [made.arguments for made in calls(reply)] == ['{"comm', ""]


async def test_a_refusal_without_text_is_a_failure(server: AnthropicServer, provider: AnthropicProvider) -> None:
    server.acts.append(stream(start(), *stopped("refusal")))

    with pytest.raises(Refused):
        await ask(provider)


BAD = {
    "empty": stream(start(), *stopped("end_turn")),
    "blank": stream(start(), *text_block(0, "\n"), *stopped("end_turn")),
    "only a thought": think("hm"),
    "cut in mid-text": stream(start(), *text_block(0, "half")),
    "cut in mid-call": stream(start(), *tool_block(0, "t1", "terminal", '{"comm')[:2]),
    "nothing": stream(),
    "nonsense": stream(start(), opened(0, {"type": "text", "text": 5})),
}


@pytest.mark.parametrize("act", BAD.values(), ids=BAD)
async def test_an_empty_or_incomplete_reply_is_a_bad_reply(
    server: AnthropicServer, provider: AnthropicProvider, act: Any
) -> None:
    server.acts.append(act)

    with pytest.raises(BadReply):
        await ask(provider)


async def test_invalid_json_is_a_bad_reply(server: AnthropicServer, provider: AnthropicProvider) -> None:
    async def act(exchange: Any) -> None:
        exchange.begin()
        await exchange.event("{never", "message_start")
        await exchange.end()

    server.acts.append(act)

    with pytest.raises(BadReply, match="not JSON"):
        await ask(provider)


async def test_events_and_blocks_of_an_unknown_kind_are_ignored(
    server: AnthropicServer, provider: AnthropicProvider
) -> None:
    odd = [
        {"type": "news", "index": 7},
        opened(0, {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {}}),
        more(0, {"type": "citations_delta", "citation": {}}),
        closed(0),
        more(9, {"type": "text_delta", "text": "to nobody"}),
    ]
    server.acts.append(stream(start(), *odd, *text_block(1, "Hi."), *stopped("end_turn")))

    deltas, reply = await ask(provider)

    assert deltas == [TextDelta("Hi.")]
    assert reply.parts == (Text("Hi."),)


async def test_a_connection_that_breaks_during_the_reply_is_a_failure(
    server: AnthropicServer, provider: AnthropicProvider
) -> None:
    server.acts.append(break_off(start(), *text_block(0, "half")))

    with pytest.raises(Unreachable):
        await ask(provider)


@pytest.mark.slow
async def test_a_connection_that_breaks_after_the_end_of_the_reply_loses_nothing(
    server: AnthropicServer, provider: AnthropicProvider
) -> None:
    server.acts.append(break_off(start(), *text_block(0, "All."), stopped("end_turn")[0]))

    _, reply = await ask(provider)

    assert reply.parts == (Text("All."),)


@pytest.mark.parametrize("events", [[], [start(), *text_block(0, "half")]], ids=["from the start", "in mid-reply"])
async def test_a_provider_that_hangs_is_unreachable(server: AnthropicServer, events: list[Any]) -> None:
    server.acts.append(hang(server, *events))
    provider = AnthropicProvider(KEY, server.url, limits=RequestTimeouts(first_seconds=5.0, idle_seconds=0.3))

    with pytest.raises(Unreachable, match="sent nothing"):
        await ask(provider)

    await server.left.wait()
    await provider.close()


async def test_a_provider_that_only_pings_times_out(server: AnthropicServer) -> None:
    async def act(exchange: Any) -> None:
        exchange.begin()
        await exchange.event(start(), "message_start")
        while True:
            await exchange.event({"type": "ping"}, "ping")
            await asyncio.sleep(0.01)

    server.acts.append(act)
    provider = AnthropicProvider(KEY, server.url, limits=RequestTimeouts(first_seconds=0.5, idle_seconds=30.0))

    with pytest.raises(Unreachable, match=r"sent nothing for 0\.5 s"):
        await ask(provider)

    await provider.close()


async def test_failures_are_distinguished(server: AnthropicServer, provider: AnthropicProvider) -> None:
    server.acts += [
        fail(429, error("rate_limit_error", "slow down"), {"retry-after": "3"}),
        fail(400, error("invalid_request_error", "prompt is too long: 210000 tokens > 200000 maximum")),
        fail(401, error("authentication_error", "invalid x-api-key")),
        fail(400, error("invalid_request_error", "messages: something else")),
        fail(502, "<html>bad gateway</html>"),
    ]
    expected: list[type[ProviderFailed]] = [RateLimited, ContextTooLong, AuthFailed, Refused, Unreachable]

    for kind in expected:
        with pytest.raises(kind):
            await ask(provider)


async def test_an_error_inside_a_stream_is_distinguished_too(
    server: AnthropicServer, provider: AnthropicProvider
) -> None:
    server.acts += [
        stream(start(), error("overloaded_error", "Overloaded")),
        stream(start(), error("rate_limit_error", "slow down")),
    ]

    with pytest.raises(Unreachable):
        await ask(provider)
    with pytest.raises(RateLimited):
        await ask(provider)


@pytest.mark.parametrize("status", [400, 401, 404, 429, 500])
async def test_no_failure_shows_the_key_nor_does_its_cause(
    server: AnthropicServer, provider: AnthropicProvider, status: int
) -> None:
    server.acts.append(fail(status, error("api_error", f"what is {KEY}?")))

    with pytest.raises(ProviderFailed) as raised:
        await ask(provider)

    assert KEY not in f"{raised.value} {raised.value!r} {raised.value.__cause__} {raised.value.__cause__!r}"


async def test_without_a_key_nothing_is_sent() -> None:
    with pytest.raises(AuthFailed, match="ANTHROPIC_API_KEY"):
        await ask(AnthropicProvider(""))


@pytest.mark.parametrize(
    ("model", "tokens"),
    [("claude-opus-5-5", 1_000_000), ("claude-haiku-4-5", 200_000), ("glm-5", None)],
)
def test_the_window_of_known_models_is_known(model: str, tokens: int | None) -> None:
    assert AnthropicProvider("").window(model) == tokens
