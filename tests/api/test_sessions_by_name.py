"""Promise 19: a client that sends a session id or a name continues that session."""

import uuid

import httpx
import pytest

from tests.api.serving import ask, session, text


def new_name() -> str:
    return f"name-{uuid.uuid4().hex}"


def test_each_request_without_a_name_and_without_replies_starts_a_new_session(http: httpx.Client) -> None:
    first, second = ask(http, "hello"), ask(http, "hello")

    assert session(first) != session(second)
    assert first.headers["x-session-new"] == second.headers["x-session-new"] == "1"


def test_promise_19_our_id_continues_its_session(http: httpx.Client) -> None:
    first = ask(http, "hello")

    second = ask(http, "and now", headers={"x-session-id": session(first)})

    assert session(second) == session(first)
    assert second.headers["x-session-new"] == "0"
    assert int(second.headers["x-session-seq"]) > int(first.headers["x-session-seq"])


def test_an_unknown_session_id_is_not_found(http: httpx.Client) -> None:
    response = ask(http, "hello", headers={"x-session-id": "hf-00000000000000000000"})

    assert response.status_code == 404
    assert response.json()["error"]["code"] == "session_not_found"


@pytest.mark.parametrize(
    "header", ["x-session-id", "x-session-key", "x-hermes-session-id", "x-session-affinity", "thread-id", "session-id"]
)
def test_a_session_name_of_the_client_is_found_or_created(http: httpx.Client, header: str) -> None:
    name = new_name()

    first, second = ask(http, "hello", headers={header: name}), ask(http, "again", headers={header: name})

    assert session(first) == session(second)
    assert (first.headers["x-session-new"], second.headers["x-session-new"]) == ("1", "0")


def test_the_same_name_in_another_header_is_the_same_session(http: httpx.Client) -> None:
    name = new_name()

    first, second = ask(http, "a", headers={"x-session-id": name}), ask(http, "b", headers={"x-session-key": name})

    assert session(first) == session(second)


def test_the_cache_key_of_the_body_is_the_name_of_last_resort(http: httpx.Client) -> None:
    key, name = new_name(), new_name()

    by_key = ask(http, "a", prompt_cache_key=key)
    again = ask(http, "b", prompt_cache_key=key)
    by_name = ask(http, "c", prompt_cache_key=key, headers={"x-session-key": name})

    assert session(by_key) == session(again) != session(by_name)


def test_the_session_id_is_also_returned_in_the_header_of_hermes(http: httpx.Client) -> None:
    response = ask(http, "hello", headers={"x-hermes-session-id": new_name()})

    assert response.headers["x-hermes-session-id"] == session(response)


def test_a_session_name_may_be_non_latin(http: httpx.Client) -> None:
    name = f"größe-名前-{uuid.uuid4().hex}".encode()

    first = http.post(
        "/v1/chat/completions",
        json={"model": "holdfast", "messages": [{"role": "user", "content": "a"}]},
        headers={b"x-session-key": name},
    )
    second = http.post(
        "/v1/chat/completions",
        json={"model": "holdfast", "messages": [{"role": "user", "content": "b"}]},
        headers={b"x-session-key": name},
    )

    assert session(first) == session(second)


@pytest.mark.parametrize("value", ["", "x" * 600, "a\tb"])
def test_an_invalid_session_name_is_refused(http: httpx.Client, value: str) -> None:
    response = ask(http, "hello", headers={"x-session-key": value})

    assert response.status_code == 400
    assert response.json()["error"]["code"] == "invalid_header"


def test_a_client_that_sends_only_the_newest_message_continues_the_same_session(http: httpx.Client) -> None:
    name = {"x-session-key": new_name()}
    ask(http, "one", headers=name)
    ask(http, "two", headers=name)

    third = ask(http, "one", headers=name)

    assert text(third) == "You said: one"
    assert third.headers["x-session-seq"] == "13"
