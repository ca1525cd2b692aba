"""A character that the model's server sends as two surrogates is joined everywhere; a lone surrogate becomes U+FFFD."""

import json
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.api.serving import Server, ask, events, recording_vendor, session, text, told

WHOLE = "\U0001f600 is one sign, \ufffd is none; last \ufffd"


@pytest.fixture(scope="module")
def splitting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("halves")
    with recording_vendor(folder / "record") as vendor, Server(folder / "home", vendor=vendor) as server:
        yield server


@pytest.fixture
def http(splitting: Server) -> Iterator[httpx.Client]:
    with splitting.http() as client:
        yield client


def words() -> str:
    return f"halves {uuid.uuid4().hex}"


def test_a_chat_completion_without_streaming(http: httpx.Client) -> None:
    assert text(ask(http, words())) == WHOLE


def test_a_chat_completion_as_a_stream(http: httpx.Client) -> None:
    chunks = events(ask(http, words(), stream=True).text)

    assert told(chunks) == WHOLE
    assert chunks[-1] == "[DONE]"


def test_a_response_with_and_without_streaming(http: httpx.Client) -> None:
    body = {"model": "holdfast", "input": words()}
    whole = http.post("/v1/responses", json=body).json()
    streamed = events(http.post("/v1/responses", json={**body, "stream": True}).text)

    assert whole["output"][0]["content"][0]["text"] == WHOLE
    assert "".join(one["delta"] for one in streamed if one["type"] == "response.output_text.delta") == WHOLE
    assert streamed[-1]["type"] == "response.completed"


def test_the_conversation_continues_from_its_history(http: httpx.Client) -> None:
    hello = words()
    first = ask(http, hello)

    second = ask(http, hello, text(first), "go on")

    assert session(first) == session(second)


def test_events_messages_export_and_dashboard(splitting: Server, http: httpx.Client) -> None:
    session_id = session(ask(http, words()))

    log = http.get(f"/v1/sessions/{session_id}/events").json()["events"]
    said = [event["body"]["parts"][0]["text"] for event in log if event["kind"] == "model_said"]
    messages = http.get(f"/v1/sessions/{session_id}/messages")
    exported = holdfast(splitting.home, "sessions", "export", session_id)

    assert said == [WHOLE]
    assert WHOLE in json.dumps(messages.json(), ensure_ascii=False)
    assert WHOLE in exported or json.dumps(WHOLE)[1:-1] in exported
    with splitting.http(follow_redirects=True) as browser:
        page = browser.get(f"/ui/sessions/{session_id}")
    assert page.status_code == 200, page.text


def holdfast(home: Path, *arguments: str) -> str:
    command = [sys.executable, "-m", "holdfast", "--home", str(home), *arguments]
    return subprocess.run(command, capture_output=True, check=True, timeout=60).stdout.decode("utf-8")
