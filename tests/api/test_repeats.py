"""Promise 8: retries of one request are one request, streaming too, and after a restart."""

import threading
import uuid
from typing import Any

import httpx
import pytest

from tests.api.serving import SLOWLY, Server, ask, events, session, told


def new_key(**more: str) -> dict[str, str]:
    return {"idempotency-key": uuid.uuid4().hex, **more}


def test_a_repeated_request_gets_the_same_reply_without_running_again(http: httpx.Client) -> None:
    headers = new_key()

    first, again = ask(http, "hello", headers=headers), ask(http, "hello", headers=headers)

    assert first.json() == again.json()
    for name in ("x-session-id", "x-turn-id", "x-session-seq"):
        assert first.headers[name] == again.headers[name]


def test_a_repeated_request_within_a_conversation_makes_no_fork(http: httpx.Client) -> None:
    hello = f"hello {uuid.uuid4().hex}"
    first = ask(http, hello).json()["choices"][0]["message"]["content"]
    headers = new_key()

    second = ask(http, hello, first, "go on", headers=headers)
    again = ask(http, hello, first, "go on", headers=headers)

    assert second.json() == again.json()
    assert "x-session-forked-from" not in again.headers


def test_another_body_with_the_same_key_is_refused(http: httpx.Client) -> None:
    headers = new_key()
    ask(http, "hello", headers=headers)

    other = ask(http, "good bye", headers=headers)

    assert other.status_code == 422
    assert other.json()["error"]["code"] == "key_reused"


def test_the_same_key_for_another_session_is_another_request(http: httpx.Client) -> None:
    headers = new_key()

    one = ask(http, "hello", headers={**headers, "x-session-key": uuid.uuid4().hex})
    other = ask(http, "hello", headers={**headers, "x-session-key": uuid.uuid4().hex})

    assert session(one) != session(other)


def test_a_stream_can_be_repeated_as_a_stream_or_as_a_whole(http: httpx.Client) -> None:
    headers = new_key()

    first = events(ask(http, "hello", headers=headers, stream=True).text)
    again = events(ask(http, "hello", headers=headers, stream=True).text)
    whole = ask(http, "hello", headers=headers).json()

    assert told(first) == told(again) == whole["choices"][0]["message"]["content"] == "You said: hello"
    assert first[-2] == again[-2]
    assert first[0]["id"] == again[0]["id"] == whole["id"]


def test_a_repeated_request_joins_the_running_one(server: Server) -> None:
    headers = new_key()
    replies: list[Any] = []

    def one() -> None:
        with server.http() as http:
            replies.append(ask(http, "hello", headers=headers, model=server.model("slow")).json())

    threads = [threading.Thread(target=one) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(replies) == 4
    assert all(reply == replies[0] for reply in replies)


@pytest.mark.parametrize("stream", [False, True])
def test_a_repeated_request_after_a_kill_continues_the_turn(own: Server, stream: bool) -> None:
    headers = new_key()
    with (
        own.http() as http,
        pytest.raises(httpx.HTTPError),
        http.stream(
            "POST",
            "/v1/chat/completions",
            json={"model": own.model("slow"), "messages": [{"role": "user", "content": "hello"}], "stream": True},
            headers=headers,
        ) as response,
    ):
        found = session(response)
        for number, _ in enumerate(response.iter_lines()):
            if number == 30:
                own.kill()
    own.restart()

    with own.http() as http:
        again = ask(http, "hello", headers=headers, model=own.model("slow"), stream=stream)

    said = told(events(again.text)) if stream else again.json()["choices"][0]["message"]["content"]
    assert session(again) == found
    assert said == SLOWLY
