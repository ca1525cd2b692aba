"""A message that the provider refuses does not block its session: the client gets the reason, and the next turn works."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.api.serving import Server, ask, recording_vendor, text

BAD = "forbidden-words"


@pytest.fixture(scope="module")
def record(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("refusing") / "requests.jsonl"


@pytest.fixture(scope="module")
def http(tmp_path_factory: pytest.TempPathFactory, record: Path) -> Iterator[httpx.Client]:
    home = tmp_path_factory.mktemp("refusing") / "home"
    with (
        recording_vendor(record, "--refuse", BAD) as vendor,
        Server(home, vendor=vendor) as server,
        server.http() as client,
    ):
        yield client


def shown(record: Path) -> list[str]:
    """The last request that the model accepted."""
    sent = json.loads(record.read_text().splitlines()[-1])
    return [message["content"] for message in sent["messages"] if message["role"] != "system"]


@pytest.mark.parametrize("streamed", [False, True])
def test_a_named_session_continues_after_a_refused_message(http: httpx.Client, record: Path, streamed: bool) -> None:
    name = {"x-session-key": f"refused-{streamed}"}
    first = ask(http, "hello", headers=name)

    refused = ask(http, BAD, headers=name, stream=streamed)
    second = ask(http, "never mind", headers=name)

    assert BAD in refused.text, "the client gets the provider's reason"
    assert refused.status_code == (200 if streamed else 400)
    assert text(second) == "You said: never mind"
    assert first.headers["x-session-id"] == second.headers["x-session-id"]
    assert shown(record) == ["hello", "You said: hello", "never mind"]


def test_a_client_that_keeps_the_refused_message_in_its_history_can_continue(http: httpx.Client, record: Path) -> None:
    first = ask(http, "hello there")
    refused = ask(http, "hello there", text(first), BAD)
    assert refused.status_code == 400

    history: list[Any] = ["hello there", text(first), BAD, {"role": "user", "content": "never mind"}]
    second = ask(http, *history)

    assert text(second) == "You said: never mind"
    assert shown(record) == ["hello there", "You said: hello there", "never mind"]


def test_a_response_can_follow_a_refused_one(http: httpx.Client, record: Path) -> None:
    def respond(words: str) -> httpx.Response:
        return http.post("/v1/responses", json={"model": "holdfast", "input": words, "conversation": "refused"})

    assert respond("hello").status_code == 200
    refused = respond(BAD)
    after = respond("never mind")

    assert (refused.status_code, refused.json()["error"]["code"]) == (400, "refused")
    assert after.status_code == 200, after.text
    assert shown(record) == ["hello", "You said: hello", "never mind"]
