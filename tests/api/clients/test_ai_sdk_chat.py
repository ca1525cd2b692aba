"""Chats of the Vercel AI SDK, in two major versions, unmodified: they stream, resume and continue in one session."""

import random
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.api.ai_sdk_client import UIChat, shown, texts, tool_parts
from tests.api.serving import BRISKLY, KEY, SLOWLY, Server
from tests.crash.programs import wait_until
from tests.sampling import ROUNDS as WANTED

pytestmark = [pytest.mark.clients, pytest.mark.timeout(180)]
ROUNDS = WANTED or 3
SDKS = ["ai", "ai-6"]
WEATHER_TOOL = {"name": "weather", "inputSchema": {"type": "object", "properties": {"place": {"type": "string"}}}}
PATH = "/v1/ai-sdk/chat"


@pytest.fixture(scope="module")
def brisk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server(tmp_path_factory.mktemp("ai-sdk") / "home", alone="brisk") as running:
        yield running


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server(tmp_path_factory.mktemp("ai-sdk") / "home", alone="tools", approval_seconds=120) as running:
        yield running


@pytest.fixture
def chat_id() -> str:
    return f"chat {uuid.uuid4().hex[:8]}/ä"


def sessions(server: Server) -> list[Any]:
    with server.http() as http:
        found: list[Any] = http.get("/v1/sessions").json()["sessions"]
        return found


def history(server: Server, chat_id: str, **query: Any) -> Any:
    with server.http() as http:
        answer = http.get(f"{PATH}/{chat_id}/messages", params=query)
        assert answer.status_code == 200, answer.text
        return answer.json()


def session_of(server: Server, chat_id: str) -> Any:
    with server.http() as http:
        return http.get(f"/v1/sessions/{history(server, chat_id)['session_id']}").json()


@pytest.mark.parametrize("sdk", SDKS)
def test_a_chat_continues_one_session(brisk: Server, chat_id: str, sdk: str) -> None:
    with UIChat(brisk, chat_id, sdk=sdk) as chat:
        chat.ask("one")
        state = chat.ask("two")

    assert (state["status"], state["errors"]) == ("ready", [])
    assert texts(state) == [("user", "one"), ("assistant", BRISKLY), ("user", "two"), ("assistant", BRISKLY)]
    assert session_of(brisk, chat_id)["turn_count"] == 2
    loaded = history(brisk, chat_id)
    assert texts(loaded) == texts(state) and (loaded["active"], loaded["writing"]) == (False, None)
    assert [one["id"] for one in loaded["messages"][1::2]] == [one["id"] for one in state["messages"][1::2]]


@pytest.mark.parametrize("sdk", SDKS)
def test_a_chat_that_disconnects_in_mid_stream_resumes_with_the_exact_text(
    brisk: Server, chat_id: str, sdk: str
) -> None:
    with UIChat(brisk, chat_id, sdk=sdk) as chat:
        chat.do("send", text="one")
        chat.do("read", length=20)
        left = chat.do("leave")
        assert 0 < len(left["text"]) < len(BRISKLY)

        chat.do("resume")
        state = chat.do("settle")

    assert (state["status"], state["text"], len(state["messages"])) == ("ready", BRISKLY, 2)


@pytest.mark.crash
@pytest.mark.timeout(60 + 20 * ROUNDS)
@pytest.mark.parametrize("sdk", SDKS[: 1 if WANTED is None else 2])
def test_a_chat_resumes_with_the_exact_text_after_its_server_was_killed(tmp_path: Path, sdk: str) -> None:
    chance = random.Random(5)
    with Server(tmp_path / "home", alone="brisk") as server, UIChat(server, "killed", sdk=sdk) as chat:
        for number in range(ROUNDS):
            chat.do("send", text=f"message {number}")
            chat.do("read", length=chance.randrange(1, len(BRISKLY) // 2))
            server.kill()
            assert chat.do("settle")["status"] == "error"
            server.restart()
            chat.do("resume")
            state = chat.do("settle")

            assert (state["status"], state["text"]) == ("ready", BRISKLY)
            assert len(state["messages"]) == 2 * number + 2
        assert len(sessions(server)) == 1
        assert texts(history(server, "killed")) == texts(state)


def test_a_page_that_is_loaded_in_mid_stream_resumes_from_the_history(tmp_path: Path, chat_id: str) -> None:
    with Server(tmp_path / "home", alone="slow") as server, UIChat(server, chat_id) as first:
        first.do("send", text="one")
        first.do("read", length=20)
        loaded = history(server, chat_id)
        assert loaded["active"] is True and str(loaded["writing"]).startswith("turn-")
        with UIChat(server, chat_id, messages=loaded["messages"]) as second:
            second.do("resume")
            seen = second.do("settle")
        state = first.do("settle")

    assert texts(seen) == texts(state) == [("user", "one"), ("assistant", SLOWLY)]


def test_nothing_is_resumed_when_nothing_runs(brisk: Server, chat_id: str) -> None:
    with UIChat(brisk, chat_id) as chat:
        chat.do("resume")
        assert chat.do("settle")["status"] == "ready"
        before = chat.ask("one")
        chat.do("resume")
        assert chat.do("settle") == before


def test_a_client_that_was_away_when_its_turn_ended_gets_the_rest_if_it_names_its_message(
    brisk: Server, chat_id: str
) -> None:
    with UIChat(brisk, chat_id, replay=True) as chat:
        chat.do("send", text="one")
        chat.do("read", length=20)
        chat.do("leave")
        wait_until(lambda: not history(brisk, chat_id)["active"], "the end of the turn")
        chat.do("resume")
        state = chat.do("settle")

    assert (state["text"], len(state["messages"])) == (BRISKLY, 2)


def test_a_chat_that_lost_the_end_of_a_reply_goes_on_in_its_session(brisk: Server, chat_id: str) -> None:
    with UIChat(brisk, chat_id) as chat:
        chat.do("send", text="one")
        chat.do("read", length=20)
        chat.do("leave")
        wait_until(lambda: not history(brisk, chat_id)["active"], "the end of the turn")
        chat.ask("two")
        chat.do("send", text="three")
        chat.do("read", length=20)
        chat.do("leave")
        state = chat.ask("four")  # while the turn before still runs

    assert (state["status"], state["text"]) == ("ready", BRISKLY)
    loaded = history(brisk, chat_id)
    assert [text for role, text in texts(loaded) if role == "user"] == ["one", "two", "three", "four"]
    assert {text for role, text in texts(loaded) if role == "assistant"} == {BRISKLY}


@pytest.mark.parametrize("sdk", SDKS)
def test_regenerating_replaces_the_last_reply_in_the_same_session(brisk: Server, chat_id: str, sdk: str) -> None:
    with UIChat(brisk, chat_id, sdk=sdk) as chat:
        first = chat.ask("one")
        chat.do("regenerate")
        again = chat.do("settle")
        assert texts(again) == texts(first) and again["messages"][1]["id"] != first["messages"][1]["id"]
        chat.ask("two")
        chat.do("regenerate")
        state = chat.do("settle")
        assert [text for role, text in texts(state) if role == "user"] == ["one", "two"]
        chat.do("edit", text="something else", index=2)
        state = chat.do("settle")

    assert [text for role, text in texts(state) if role == "user"] == ["one", "something else"]
    assert texts(history(brisk, chat_id)) == texts(state)


def test_regenerating_in_mid_stream_stops_the_reply_first(tmp_path: Path, chat_id: str) -> None:
    with Server(tmp_path / "home", alone="dawdling") as server, UIChat(server, chat_id) as chat:
        chat.do("send", text="one")
        first = chat.do("read", length=10)
        chat.do("leave")
        chat.do("regenerate")
        state = chat.do("read", length=10)

        assert len(state["messages"]) == 2 and state["messages"][1]["id"] != first["messages"][1]["id"]
        assert len(texts(history(server, chat_id))) <= 2 and len(sessions(server)) == 1


def test_stop_ends_the_turn_and_keeps_its_text(tmp_path: Path, chat_id: str) -> None:
    with Server(tmp_path / "home", alone="dawdling") as server, server.http() as http, UIChat(server, chat_id) as chat:
        chat.do("send", text="one")
        chat.do("read", length=10)
        stopped = http.post(f"{PATH}/{chat_id}/stop").json()
        state = chat.do("settle")

        assert stopped["stopped"] is True and state["status"] == "ready"
        assert state["text"] and SLOWLY.startswith(state["text"])
        assert state["messages"][-1]["metadata"]["holdfast"]["outcome"] == "interrupted"
        assert texts(history(server, chat_id)) == texts(state)
        assert http.post(f"{PATH}/{chat_id}/stop").json()["stopped"] is False
        assert http.get(f"{PATH}/{chat_id}/stream").status_code == 204
        chat.do("send", text="two")
        chat.do("read", length=10)
        assert len(sessions(server)) == 1


def test_two_tabs_of_a_chat_are_answered_one_after_the_other(brisk: Server, chat_id: str) -> None:
    with UIChat(brisk, chat_id) as first, UIChat(brisk, chat_id) as second:
        first.do("send", text="from the first")
        second.do("send", text="from the second")
        states = [first.do("settle"), second.do("settle")]

    assert [state["text"] for state in states] == [BRISKLY, BRISKLY]
    asked = [text for role, text in texts(history(brisk, chat_id)) if role == "user"]
    assert sorted(asked) == ["from the first", "from the second"]
    assert session_of(brisk, chat_id)["turn_count"] == 2


@pytest.mark.parametrize("sdk", SDKS)
def test_calls_of_the_servers_tools_are_shown(tools: Server, chat_id: str, sdk: str) -> None:
    with UIChat(tools, chat_id, sdk=sdk) as chat:
        state = chat.ask('use tool terminal {"command": "echo from the tool"}')
        again = chat.ask("and now?")

    assert (again["status"], again["errors"], again["calls"]) == ("ready", [], [])
    [part] = tool_parts(state["messages"][-1])
    assert (part["type"], part["toolName"], part["state"]) == ("dynamic-tool", "terminal", "output-available")
    assert part["input"] == {"command": "echo from the tool"} and "from the tool" in part["output"]
    assert part["providerExecuted"] is True
    assert session_of(tools, chat_id)["turn_count"] == 2
    [loaded] = tool_parts(history(tools, chat_id)["messages"][1])
    assert {name: loaded[name] for name in loaded if name in part} == {
        name: part[name] for name in loaded if name in part
    }


@pytest.mark.parametrize("sdk", SDKS)
def test_the_client_runs_its_own_tools(tools: Server, chat_id: str, sdk: str) -> None:
    with UIChat(tools, chat_id, sdk=sdk, tools=[WEATHER_TOOL]) as chat:
        chat.do("send", text='use tool weather {"place": "Bonn"}')
        state = chat.do("settle")
        while "Rain" not in state["text"]:
            state = chat.do("settle")
        after = chat.ask("thanks")

    assert state["calls"] == ["weather"] and len(state["messages"]) == 2
    [part] = tool_parts(state["messages"][-1])
    assert (part["type"], part["input"], part["output"]) == (
        "tool-weather",
        {"place": "Bonn"},
        {"weather": "Rain in Bonn."},
    )
    assert after["status"] == "ready" and len(after["messages"]) == 4
    loaded = history(tools, chat_id)
    assert texts(loaded) == texts(after)
    assert tool_parts(loaded["messages"][1])[0]["output"] == {"weather": "Rain in Bonn."}
    assert session_of(tools, chat_id)["turn_count"] == 3


@pytest.mark.parametrize("sdk", SDKS)
@pytest.mark.parametrize("approved", [True, False])
def test_the_user_answers_an_approval_in_the_chat(tools: Server, chat_id: str, sdk: str, approved: bool) -> None:
    with UIChat(tools, chat_id, sdk=sdk) as chat:
        asked = chat.ask('use tool terminal {"command": "rm -rf gone"}')
        [part] = tool_parts(asked["messages"][-1])
        assert (asked["status"], part["state"]) == ("ready", "approval-requested")
        assert "rm -rf gone" in part["approval"]["descriptor"]["question"]

        loaded = history(tools, chat_id)
        assert loaded["active"] and tool_parts(loaded["messages"][-1])[0]["state"] == "approval-requested"
        with UIChat(tools, chat_id, sdk=sdk, messages=loaded["messages"]) as other:
            other.do("resume")
            assert tool_parts(other.do("settle")["messages"][-1])[0]["state"] == "approval-requested"

        chat.do("approve", approved=approved)
        state = chat.do("settle")
        while not state["text"]:
            state = chat.do("settle")
        after = chat.ask("thanks")

    [part] = tool_parts(state["messages"][-1])
    assert part["state"] == ("output-available" if approved else "output-denied")
    assert after["status"] == "ready" and len(after["messages"]) == 4
    assert session_of(tools, chat_id)["turn_count"] == 2
    [loaded_part] = tool_parts(history(tools, chat_id)["messages"][1])
    assert (loaded_part["state"], loaded_part["approval"]["approved"]) == (part["state"], approved)


def test_a_failed_turn_is_an_error_of_the_chat(tmp_path: Path, chat_id: str) -> None:
    with Server(tmp_path / "home", alone="fails") as server, UIChat(server, chat_id) as chat:
        state = chat.ask("one")
        assert (state["status"], state["errors"]) == ("error", ["I will not. (refused)"])
        chat.do("regenerate")
        assert chat.do("settle")["errors"] == 2 * ["I will not. (refused)"]
        assert texts(history(server, chat_id)) == [("user", "one")]
        assert len(sessions(server)) == 1


def test_reasoning_comes_before_the_text(tmp_path: Path, chat_id: str) -> None:
    with Server(tmp_path / "home", alone="thinks") as server, UIChat(server, chat_id) as chat:
        message = chat.ask("one")["messages"][-1]
        loaded = history(server, chat_id)["messages"][-1]

    for one in (message, loaded):
        kinds = [(part["type"], part.get("text")) for part in one["parts"]]
        assert kinds == [("step-start", None), ("reasoning", "Let me see. Yes."), ("text", "It is so.")]


def test_only_the_newest_message_needs_to_be_sent(brisk: Server, chat_id: str) -> None:
    with brisk.http() as http:
        for text in ("one", "two"):
            message = {"id": "m", "role": "user", "parts": [{"type": "text", "text": text}]}
            answer = http.post(PATH, json={"id": chat_id, "message": message})
            assert answer.headers["x-vercel-ai-ui-message-stream"] == "v1"
            assert answer.text.endswith("data: [DONE]\n\n") and '"type":"finish"' in answer.text

    assert [shown(one) for one in history(brisk, chat_id)["messages"]] == ["one", BRISKLY, "two", BRISKLY]
    assert [shown(one) for one in history(brisk, chat_id, limit=1)["messages"]] == ["two", BRISKLY]


BAD: list[tuple[dict[str, Any], str]] = [
    ({}, "id"),
    ({"id": ""}, "id"),
    ({"id": "x"}, "messages"),
    ({"id": "x", "messages": []}, "messages"),
    ({"id": "x", "messages": [{"role": "user", "parts": []}]}, "messages[0].parts"),
    ({"id": "x", "messages": [{"role": "robot", "parts": []}]}, "messages[0].role"),
    ({"id": "x", "messages": [{"role": "user", "parts": [{"type": "hologram"}]}]}, "messages[0].parts[0].type"),
    ({"id": "x", "messages": [{"role": "user", "parts": [{"type": "text"}]}]}, "messages[0].parts[0].text"),
    ({"id": "x", "messages": [{"role": "assistant", "parts": [{"type": "text", "text": "hi"}]}]}, "messages"),
    (
        {"id": "x", "message": {"role": "user", "parts": [{"type": "text", "text": "a"}]}, "webSearch": True},
        "webSearch",
    ),
    ({"id": "x", "message": {"role": "user", "parts": []}, "trigger": "regenerate-message"}, "messages"),
    ({"id": "x", "message": {"role": "user", "parts": [{"type": "text", "text": "a"}]}, "model": "gpt-99"}, "model"),
]


@pytest.mark.parametrize(("body", "param"), BAD, ids=[str(number) for number in range(len(BAD))])
def test_bad_input_is_refused_by_name(brisk: Server, body: dict[str, Any], param: str) -> None:
    with brisk.http() as http:
        answer = http.post(PATH, json=body)

    assert answer.status_code in (400, 404), answer.text
    assert answer.json()["error"]["param"] == param


def test_a_chat_needs_the_key(brisk: Server) -> None:
    for path in (PATH, f"{PATH}/x/stop"):
        assert httpx.post(f"{brisk.url}{path}", json={}).status_code == 401
    for end in ("stream", "messages"):
        assert httpx.get(f"{brisk.url}{PATH}/x/{end}").status_code == 401
        assert httpx.get(f"{brisk.url}{PATH}/hf-unknown/{end}", headers=_key()).status_code == 404


def _key() -> dict[str, str]:
    return {"authorization": f"Bearer {KEY}"}


def test_a_foreign_approval_is_not_found(tools: Server, chat_id: str) -> None:
    part = {
        "type": "dynamic-tool",
        "toolName": "terminal",
        "toolCallId": "c",
        "state": "approval-responded",
        "providerExecuted": True,
        "approval": {"id": "q-unknown", "approved": True},
    }
    messages = [
        {"id": "u", "role": "user", "parts": [{"type": "text", "text": "hello"}]},
        {"id": "a", "role": "assistant", "parts": [part]},
    ]
    with tools.http() as http:
        assert http.post(PATH, json={"id": chat_id, "messages": messages}).status_code == 404
