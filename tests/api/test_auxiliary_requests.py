"""Requests that clients make for their own use, such as for a title, stay out of conversations and lists."""

from typing import Any

import httpx
import pytest

from holdfast.api.openai.admission import classify
from holdfast.engine.admission.history_match import ClientMessage
from holdfast.model.message import Text
from tests.api.serving import ask, session, text
from tests.api.test_histories import unique

TASK = "### Task:\nSuggest some questions.\n### Output:\nJSON\n### Chat History:\n<chat_history>\nUSER: hi\n</chat_history>"
TITLE = "You are a title generator. You output ONLY a thread title."


def said(role: str, content: str) -> dict[str, Any]:
    return {"role": role, "content": content}


def listed(http: httpx.Client, **query: Any) -> list[str]:
    found = http.get("/v1/sessions", params={"limit": 1000, **query}).json()["sessions"]
    return [one["id"] for one in found]


@pytest.mark.parametrize(
    ("system", "last"),
    [
        ("", TASK),
        ("Be kind.", TASK),
        ("", "### Task:\nYou are an autocompletion system. Continue the text in `<text>`."),
        (TITLE, "hello"),
        ("", "Provide a concise, 5-word-or-less title for the conversation, using title case."),
        ("", "Analyze this conversation and provide:\n1. The detected language of the conversation\n2. A title"),
        ("You are a professional conversation summarizer. Generate a concise title.", "user: hello"),
        ("你是一名擅长会话的助理，你需要将用户的会话总结为 10 个字以内的标题", "user: 你好"),
        ("", "Please generate a four to five word title summarizing our conversation."),
        ("*Briefly* summarize this partial conversation about programming.", "# USER\nhello"),
        ("You are an expert that generates concise, one-line Git commit messages.", "diff --git a/x b/x"),
    ],
)
def test_the_prompts_of_known_clients_are_recognised(system: str, last: str) -> None:
    assert classify(system, [ClientMessage(role="user", parts=(Text(last),))]) == "yes"


@pytest.mark.parametrize(
    ("system", "last"),
    [
        ("", "What is a good title for my novel?"),
        ("", "### Task:\nRespond to the user query using the context.\n<context>a <chat_history> b</context>\nhi"),
        ("", "### Task: fix the build"),
        ("You are opencode, an agent for the terminal.", "Generate a title for this conversation:"),
        ("Answer in one sentence.", "Summarize our conversation."),
    ],
)
def test_ordinary_messages_are_not_taken_for_auxiliary_requests(system: str, last: str) -> None:
    assert classify(system, [ClientMessage(role="user", parts=(Text(last),))]) == "no"


def test_an_auxiliary_request_before_the_first_message_does_not_take_the_name(http: httpx.Client) -> None:
    name = {"x-session-affinity": unique("ses"), "x-session-id": unique("ses")}
    title = ask(http, said("system", TITLE), said("user", "Generate a title:"), said("user", "hello"), headers=name)
    first = ask(http, said("system", "You are an agent."), said("user", "hello"), headers=name)
    second = ask(
        http,
        said("system", "You are an agent."),
        *(said("user", "hello"), said("assistant", text(first)), said("user", "on")),
        headers=name,
    )

    assert session(title) != session(first) == session(second)
    assert session(title) not in listed(http) and session(first) in listed(http)
    assert session(title) in listed(http, sides=True)
    assert http.get(f"/v1/sessions/{session(title)}").json()["side_of"] == ""


def test_auxiliary_requests_under_the_name_of_a_chat_are_no_input_of_it(http: httpx.Client) -> None:
    name = {"x-openwebui-chat-id": unique("chat")}
    history: list[str] = []
    found = set()
    for n in range(10):
        reply = ask(http, *history, f"question {n}", headers=name)
        found.add(session(reply))
        history += [f"question {n}", text(reply)]
        side = ask(http, TASK, headers=name)
        assert session(side) not in found

    [chat] = found
    assert http.get(f"/v1/sessions/{chat}").json()["turn_count"] == 10
    assert http.get(f"/v1/sessions/{session(side)}").json()["side_of"] == chat


def test_auxiliary_requests_without_a_name_are_not_listed(http: httpx.Client) -> None:
    hello = unique("hello")
    before = set(listed(http))
    first = ask(http, hello)
    ask(http, TASK)
    ask(http, hello, text(first), "Please generate a four to five word title summarizing our conversation.")
    second = ask(http, hello, text(first), "go on")

    assert set(listed(http)) - before == {session(first)} == {session(second)}


def test_a_header_decides_whether_a_request_is_auxiliary(http: httpx.Client) -> None:
    name = {"x-session-key": unique("name")}
    first = ask(http, "hello", headers=name)
    side = ask(http, "anything", headers={**name, "x-session-side": "1"})
    inside = ask(http, said("system", TITLE), said("user", "Entitle this"), headers={**name, "x-session-side": "off"})

    assert session(side) != session(first) == session(inside)
    assert ask(http, "x", headers={"x-session-side": "perhaps"}).status_code == 400


def test_new_words_under_a_new_system_text_continue_the_session_that_the_client_names(http: httpx.Client) -> None:
    name = {"x-session-key": unique("name")}
    first = ask(http, said("system", "You are A."), said("user", "my name is Ann"), headers=name)
    second = ask(http, said("system", "You are B."), said("user", "what is my name?"), headers=name)

    assert session(first) == session(second)
    messages = http.get(f"/v1/sessions/{session(first)}/messages").json()["messages"]
    assert [one["content"] for one in messages if one["role"] == "user"] == ["my name is Ann", "what is my name?"]
    assert session(second) in listed(http)


def test_regenerating_a_reply_continues_the_session(http: httpx.Client) -> None:
    hello = unique("hello")
    first = ask(http, hello)
    second = ask(http, hello, text(first), "again")
    retry = ask(http, hello, text(first), "again")

    assert session(retry) == session(second) == session(first)
    assert "x-session-forked-from" not in retry.headers


def test_a_reply_to_another_program_is_not_taken_back(http: httpx.Client) -> None:
    hello = unique("hello")
    first = ask(http, hello)
    second = ask(http, hello, text(first), "again", headers={"user-agent": "another program"})
    retry = ask(http, hello, text(first), "again")

    assert retry.headers["x-session-forked-from"] == session(second)
