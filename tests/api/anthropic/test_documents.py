"""Every response, event and error has exactly the fields of the types in Anthropic's SDK."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from anthropic.types import MessageTokensCount

from tests.api.anthropic.conftest import VERSION, post
from tests.api.anthropic.sdk_types import check, check_error, check_message, check_stream
from tests.api.serving import KEY, Server

WEATHER = {"name": "weather", "input_schema": {"type": "object"}}
CASES: list[tuple[str, dict[str, Any], list[str], str]] = [
    ("echo", {}, ["text"], "end_turn"),
    ("tools", {"tools": [WEATHER]}, ["tool_use", "tool_use"], "tool_use"),
    ("thinks", {"thinking": {"type": "enabled", "budget_tokens": 1024}, "max_tokens": 2048}, ["thinking", "text"], "end_turn"),
    ("thinks", {"thinking": {"type": "adaptive", "display": "omitted"}}, ["text"], "end_turn"),
    ("cut", {}, ["text"], "max_tokens"),
    ("declines", {}, ["text"], "refusal"),
]  # fmt: skip
SAID = 'use tool weather {"place": "Bonn"}\nuse tool weather {"place": "Rome"}'


@pytest.mark.parametrize(("model", "more", "blocks", "stop"), CASES, ids=lambda value: str(value)[:20])
def test_a_message_and_its_stream_are_equal_and_complete(
    server: Server, http: httpx.Client, model: str, more: dict[str, Any], blocks: list[str], stop: str
) -> None:
    message = check_message(post(http, SAID, model=server.model(model), **more))
    events = check_stream(post(http, SAID, model=server.model(model), stream=True, **more).text)

    assert [block["type"] for block in message["content"]] == blocks
    assert message["stop_reason"] == stop
    assert collect(events) | {"id": message["id"]} == message


def collect(events: list[dict[str, Any]]) -> dict[str, Any]:
    """The message that the events of a stream build."""
    first, *rest = events
    assert first["type"] == "message_start" and [event["type"] for event in rest[-2:]] == [
        "message_delta",
        "message_stop",
    ]
    message: dict[str, Any] = first["message"]
    texts: dict[str, str] = {"text_delta": "text", "thinking_delta": "thinking", "signature_delta": "signature"}
    written = ""
    for event in rest:
        match event["type"]:
            case "content_block_start":
                assert event["index"] == len(message["content"])
                message["content"].append(event["content_block"])
            case "content_block_delta":
                assert event["index"] == len(message["content"]) - 1
                delta = event["delta"]
                if name := texts.get(delta["type"]):
                    message["content"][-1][name] += delta[name]
                else:
                    written += delta["partial_json"]
            case "content_block_stop" if written:
                message["content"][-1]["input"] = httpx.Response(200, text=written).json()
                written = ""
            case "message_delta":
                message |= event["delta"]
                message["usage"] |= event["usage"]
    return message


def test_an_idle_stream_sends_pings(server: Server, http: httpx.Client) -> None:
    assert 'event: ping\ndata: {"type":"ping"}\n\n' in post(http, "hello", stream=True).text


def test_a_stream_that_fails_ends_with_an_error_event(tmp_path: Path) -> None:
    with Server(tmp_path / "home", alone="fails") as server, server.http() as http:
        events = check_stream(post(http, "hello", stream=True).text)

    assert [event["type"] for event in events] == ["message_start", "error"]
    assert events[-1]["error"] == {"type": "invalid_request_error", "message": "I will not."}


def test_the_usage_has_what_the_provider_counted(server: Server, http: httpx.Client) -> None:
    usage = check_message(post(http, "one two three"))["usage"]

    assert usage["input_tokens"] > 0 and usage["output_tokens"] > 0
    assert (usage["cache_read_input_tokens"], usage["cache_creation_input_tokens"]) == (0, 0)


def test_tokens_are_counted_without_a_session(http: httpx.Client) -> None:
    before = http.get("/v1/sessions", params={"sides": True}).json()
    body = {"model": "holdfast", "messages": [{"role": "user", "content": "hello"}]}
    short = http.post("/v1/messages/count_tokens", json=body, headers=VERSION).json()
    body |= {"system": "Be brief. " * 100, "tools": [WEATHER], "thinking": {"type": "adaptive"}}
    long = http.post("/v1/messages/count_tokens", json=body, headers=VERSION).json()

    check(MessageTokensCount, short)
    assert 0 < short["input_tokens"] < long["input_tokens"] - 200
    assert http.get("/v1/sessions", params={"sides": True}).json() == before


def test_models_are_listed_in_the_format_of_the_client(server: Server) -> None:
    with server.anthropic() as client:
        names = [model.id for model in client.models.list()]

    with server.http() as http:
        assert names == [model["id"] for model in http.get("/v1/models").json()["data"]]


@pytest.fixture
def stranger(server: Server) -> Iterator[httpx.Client]:
    """A client without a key."""
    with httpx.Client(base_url=server.url, verify=False) as client:
        yield client


@pytest.mark.parametrize(
    "headers", [{"x-api-key": KEY}, {"authorization": f"Bearer {KEY}"}], ids=["x-api-key", "bearer"]
)
def test_the_key_may_be_in_either_header(stranger: httpx.Client, headers: dict[str, str]) -> None:
    check_message(post(stranger, "hello", headers=headers))


@pytest.mark.parametrize("headers", [{}, {"x-api-key": ""}, {"x-api-key": f"{KEY}x"}, {"authorization": KEY}], ids=str)
def test_a_request_without_the_right_key_is_refused(stranger: httpx.Client, headers: dict[str, str]) -> None:
    check_error(post(stranger, "hello", headers=headers), 401, "authentication_error")
