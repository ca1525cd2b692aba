"""Anthropic's SDK for Python, unmodified, and without any header of ours: one session, and nothing lost."""

import itertools
import json
import os
import random
import signal
import threading
import uuid
from contextlib import suppress
from pathlib import Path
from typing import Any

import anthropic
import httpx
import httpx2
import pytest
from anthropic.types import MessageParam

from tests.api.anthropic.conftest import listed, logged
from tests.api.serving import BRISKLY, SLOWLY, Server
from tests.crash.programs import wait_until
from tests.sampling import SOAK

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
WEATHER: Any = {
    "name": "weather",
    "description": "Tells the weather.",
    "input_schema": {"type": "object", "properties": {"place": {"type": "string"}}, "required": ["place"]},
}


def say(
    client: anthropic.Anthropic, messages: list[MessageParam], *, stream: bool, **more: Any
) -> anthropic.types.Message:
    """Ask with the whole history, and add the reply to it."""
    asked: dict[str, Any] = {"model": "holdfast", "max_tokens": 1024, "messages": messages, **more}
    if stream:
        with client.messages.stream(**asked) as events:
            reply = events.get_final_message()
    else:
        reply = client.messages.create(**asked)
    messages.append({"role": "assistant", "content": reply.content})
    return reply


def text(reply: anthropic.types.Message) -> str:
    return "".join(block.text for block in reply.content if block.type == "text")


def new_session(http: httpx.Client, before: list[dict[str, Any]]) -> dict[str, Any]:
    known = {one["id"] for one in before}
    [found] = [one for one in listed(http, sides=True) if one["id"] not in known]
    return found


def test_ten_turns_are_one_session(server: Server, http: httpx.Client) -> None:
    before, messages = listed(http, sides=True), list[MessageParam]()
    with server.anthropic() as client:
        for n in range(10):
            messages.append({"role": "user", "content": f"words {n}"})
            reply = say(client, messages, stream=bool(n % 2), system="Be brief.")
            assert text(reply) == f"You said: words {n}"

    session = new_session(http, before)
    said = [[("user", f"words {n}"), ("assistant", f"You said: words {n}")] for n in range(10)]
    assert session["turn_count"] == 10
    assert logged(http, session["id"]) == [pair for turn in said for pair in turn]


@pytest.mark.parametrize("stream", [False, True])
def test_a_tool_of_the_client_continues_the_session(server: Server, http: httpx.Client, stream: bool) -> None:
    before = listed(http, sides=True)
    messages: list[MessageParam] = [
        {"role": "user", "content": f'use tool weather {{"place": "Bonn"}}\n{uuid.uuid4()}'}
    ]
    with server.anthropic() as client:
        asked = say(client, messages, stream=stream, model=server.model("tools"), tools=[WEATHER])
        [call] = [block for block in asked.content if block.type == "tool_use"]
        assert (asked.stop_reason, call.name, call.input) == ("tool_use", "weather", {"place": "Bonn"})
        result: Any = {"type": "tool_result", "tool_use_id": call.id, "content": [{"type": "text", "text": "Rain."}]}
        messages.append({"role": "user", "content": [result, {"type": "text", "text": "Thanks."}]})
        done = say(client, messages, stream=stream, model=server.model("tools"), tools=[WEATHER])
        messages.append({"role": "user", "content": "and then?"})
        last = say(client, messages, stream=stream, model=server.model("tools"), tools=[WEATHER])

    session = new_session(http, before)
    assert ("tool", "Rain.") in logged(http, session["id"])
    assert done.stop_reason == "end_turn" and session["turn_count"] == 3
    assert text(last) == "You said: and then?"


@pytest.mark.parametrize("stream", [False, True])
def test_thinking_is_shown_if_it_was_requested(server: Server, http: httpx.Client, stream: bool) -> None:
    before = listed(http, sides=True)
    messages: list[MessageParam] = [{"role": "user", "content": f"is it? {uuid.uuid4()}"}]
    with server.anthropic() as client:
        model = server.model("thinks")
        first = say(client, messages, stream=stream, model=model, thinking={"type": "adaptive"})
        messages.append({"role": "user", "content": "really?"})
        second = say(client, messages, stream=stream, model=model)

    assert [block.type for block in first.content] == ["thinking", "text"]
    thought = first.content[0]
    assert thought.type == "thinking" and thought.thinking == "Let me see. Yes."
    assert [block.type for block in second.content] == ["text"]
    assert new_session(http, before)["turn_count"] == 2


def test_the_model_receives_system_text_images_documents_tools_and_results(upstream: Server, record: Path) -> None:
    image: Any = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PIXEL}}
    link: Any = {"type": "image", "source": {"type": "url", "url": "https://example.org/a.png"}}
    document: Any = {
        "type": "document",
        "title": "a.txt",
        "source": {"type": "text", "media_type": "text/plain", "data": "Notes."},
    }
    cached: Any = {"type": "text", "text": "Look.", "cache_control": {"type": "ephemeral"}}
    with upstream.anthropic() as client:
        client.messages.create(
            model="holdfast",
            max_tokens=77,
            system=[{"type": "text", "text": "One."}, {"type": "text", "text": "Two."}],
            messages=[
                {"role": "user", "content": [cached, image, link, document]},
                {
                    "role": "assistant",
                    "content": [{"type": "tool_use", "id": "toolu_1", "name": "weather", "input": {}}],
                },
                {
                    "role": "user",
                    "content": [
                        {"type": "tool_result", "tool_use_id": "toolu_1", "content": "broken", "is_error": True}
                    ],
                },
            ],
            tools=[WEATHER],
            tool_choice={"type": "any", "disable_parallel_tool_use": True},
            stop_sequences=["END"],
        )

    body = last_request(record)
    assert body["messages"][0] == {"role": "system", "content": "One.\n\nTwo."}
    kinds = [part["type"] for part in body["messages"][1]["content"]]
    assert kinds.count("image_url") == 2 and "Notes." in str(body["messages"][1])
    assert body["messages"][2]["tool_calls"][0]["function"]["name"] == "weather"
    assert "broken" in body["messages"][3]["content"] and "failed" in body["messages"][3]["content"]
    assert [tool["function"]["name"] for tool in body["tools"]] == ["weather"]
    assert (body["tool_choice"], body["parallel_tool_calls"], body["stop"]) == ("required", False, ["END"])
    assert 77 in (body.get("max_tokens"), body.get("max_completion_tokens"))
    assert not [name for name in body if "." in name]


def last_request(record: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(record.read_text().splitlines()[-1])
    return found.get("body", found)


def test_errors_raise_the_named_exceptions(server: Server) -> None:
    with server.anthropic() as client:
        with pytest.raises(anthropic.BadRequestError, match="max_tokens"):
            client.messages.create(model="holdfast", max_tokens=0, messages=[{"role": "user", "content": "x"}])
        with pytest.raises(anthropic.NotFoundError, match="unknown model"):
            client.messages.create(model="nobody:none", max_tokens=9, messages=[{"role": "user", "content": "x"}])
    wrong = anthropic.Anthropic(base_url=server.url, api_key="not-the-key-at-all", max_retries=0)
    with wrong, pytest.raises(anthropic.AuthenticationError):
        wrong.messages.create(model="holdfast", max_tokens=9, messages=[{"role": "user", "content": "x"}])


def test_a_turn_that_fails_is_an_error(tmp_path: Path) -> None:
    with Server(tmp_path / "home", alone="fails") as server, server.anthropic() as client:
        messages: list[MessageParam] = [{"role": "user", "content": "x"}]
        for stream in (False, True):
            with pytest.raises(anthropic.APIStatusError, match="I will not"):
                say(client, messages, stream=stream)
        with server.http() as http:
            found = [logged(http, session["id"]) for session in listed(http, sides=True)]
            assert found == [[("user", "x")]] * 2


def test_a_server_killed_between_turns_loses_nothing(own: Server) -> None:
    messages = list[MessageParam]()
    for n in range(10 if SOAK else 2):
        messages.append({"role": "user", "content": f"words {n}"})
        with own.anthropic() as client:
            say(client, messages, stream=bool(n % 2))
        own.kill()
        own.restart()

    with own.http() as http:
        [session] = listed(http, sides=True)
        assert [message for _, message in logged(http, session["id"])] == [said_text(one) for one in messages]


def said_text(message: MessageParam) -> str:
    content = message["content"]
    return (
        content
        if isinstance(content, str)
        else "".join(block.text for block in content if isinstance(block, anthropic.types.TextBlock))
    )


@pytest.mark.parametrize("deltas", [1, 30, 70] if SOAK else [20])
def test_a_server_killed_during_a_turn_finishes_it_for_the_same_request(own: Server, deltas: int) -> None:
    messages: list[MessageParam] = [{"role": "user", "content": "hello"}]
    with own.anthropic() as client:
        say(client, messages, stream=True)
        messages.append({"role": "user", "content": "go on"})
        with pytest.raises(httpx2.TransportError):  # noqa: SIM117
            with client.messages.stream(model=own.model("brisk"), max_tokens=1024, messages=messages) as events:
                for n, _ in enumerate(events.text_stream):
                    if n == deltas:
                        os.kill(own.process.pid, signal.SIGKILL)
        own.process.wait()
        own.restart()
        again = say(client, messages, stream=True, model=own.model("brisk"))

    assert text(again) == BRISKLY
    with own.http() as http:
        [session] = listed(http, sides=True)
        assert session["turn_count"] == 2
        assert [role for role, _ in logged(http, session["id"])].count("user") == 2


def test_the_retry_of_the_sdk_joins_the_turn(own: Server) -> None:
    """The SDK repeats a request whose connection broke; the turn is played once."""
    replies = []

    def ask() -> None:
        with own.anthropic(max_retries=8) as client:
            asked = client.messages.create(
                model=own.model("slow"), max_tokens=1024, messages=[{"role": "user", "content": "go"}]
            )
            replies.append(text(asked))

    asking = threading.Thread(target=ask)
    asking.start()
    with own.http() as http:
        wait_until(lambda: bool(listed(http, state="running")), "the turn")
    own.kill()
    own.restart()
    asking.join(60)

    assert replies == [SLOWLY]
    with own.http() as http:
        [session] = listed(http, sides=True)
        assert session["turn_count"] == 1


@pytest.mark.parametrize("seed", range(8 if SOAK else 1))
def test_what_was_acknowledged_is_in_the_log_after_a_kill(own: Server, seed: int) -> None:
    """Several clients stream; the server is killed at any moment, and nothing that it had acknowledged is missing."""
    moment, complete, accepted = random.Random(seed).randrange(1, 6), list[str](), list[str]()
    talking = [threading.Thread(target=talk, args=(own, f"client {n}", complete, accepted)) for n in range(3)]
    for one in talking:
        one.start()
    wait_until(lambda: len(complete) >= moment, "complete replies")
    os.kill(own.process.pid, signal.SIGKILL)
    for one in talking:
        one.join(60)
    own.process.wait()
    own.restart()

    with own.http() as http:
        found = [message for one in listed(http, sides=True) for message in logged(http, one["id"])]
    assert set(accepted) <= {text for role, text in found if role == "user"}
    assert {f"You said: {text}" for text in complete} <= {text for role, text in found if role == "assistant"}


def talk(own: Server, name: str, complete: list[str], accepted: list[str]) -> None:
    """Talk until the server is killed. Record what it has accepted, and which replies were complete."""
    messages = list[MessageParam]()
    with own.anthropic() as client, suppress(httpx2.TransportError, anthropic.APIConnectionError):
        for n in itertools.count():
            messages.append({"role": "user", "content": f"{name} says {n}"})
            with client.messages.stream(model="holdfast", max_tokens=1024, messages=messages) as events:
                accepted.append(f"{name} says {n}")
                reply = events.get_final_message()
            if reply.stop_reason is None:
                return
            complete.append(f"{name} says {n}")
            messages.append({"role": "assistant", "content": reply.content})
