"""A client of the native routes. It checks each response against the type that the OpenAPI document is built from."""

import json
import re
from collections.abc import Iterator
from typing import Any

import httpx
import msgspec

from holdfast.api.native.routes import ENDPOINTS
from tests.api.serving import Server
from tests.crash.programs import wait_until

ENDED = ("done", "failed", "interrupted", "cancelled")


def check_response_type(response: httpx.Response) -> None:
    """Raise unless a successful response has exactly the documented fields."""
    path = response.request.url.path
    for endpoint in ENDPOINTS:
        fits = re.fullmatch(re.sub(r"\{\w+\}", "[^/]+", endpoint.path), path)
        is_document = response.status_code < 300 and response.headers["content-type"] == "application/json"
        if fits and is_document and endpoint.method == response.request.method and endpoint.response is not None:
            response.read()
            msgspec.convert(response.json(), endpoint.response)


def client(server: Server, **options: Any) -> httpx.Client:
    return server.http(event_hooks={"response": [check_response_type]}, **options)


def begin(http: httpx.Client, **body: Any) -> str:
    """The id of a new session."""
    response = http.post("/v1/sessions", json=body)
    assert response.status_code == 201, response.text
    return str(response.json()["id"])


def say(http: httpx.Client, session_id: str, words: str, **headers: str) -> str:
    """Send input; return the id of its turn."""
    response = http.post(f"/v1/sessions/{session_id}/turns", json={"input": words}, headers=headers)
    assert response.status_code == 202, response.text
    return str(response.json()["turn_id"])


def turn(http: httpx.Client, session_id: str, turn_id: str) -> dict[str, Any]:
    response = http.get(f"/v1/sessions/{session_id}/turns/{turn_id}")
    assert response.status_code == 200, response.text
    found: dict[str, Any] = response.json()
    return found


def wait_for_end(http: httpx.Client, session_id: str, turn_id: str) -> dict[str, Any]:
    """The turn, once it has ended."""
    wait_until(lambda: turn(http, session_id, turn_id)["state"] in ENDED, "the end of the turn")
    return turn(http, session_id, turn_id)


def said(http: httpx.Client, session_id: str, words: str) -> dict[str, Any]:
    return wait_for_end(http, session_id, say(http, session_id, words))


class Pieces:
    """The events of a stream: name, id and data."""

    def __init__(self, lines: Iterator[str]) -> None:
        self._lines = lines
        self.comments = 0

    def __iter__(self) -> Iterator[tuple[str, str, Any]]:
        name, id_, data = "message", "", ""
        for line in self._lines:
            if line.startswith(":"):
                self.comments += 1
            elif line.startswith("event: "):
                name = line[7:]
            elif line.startswith("id: "):
                id_ = line[4:]
            elif line.startswith("data: "):
                data = line[6:]
            elif not line and data:
                yield name, id_, json.loads(data)
                name, id_, data = "message", "", ""


class Listener:
    """A client of the stream that follows the rules of docs/api.md and checks that the server does."""

    def __init__(self, session_id: str) -> None:
        self.session_id = session_id
        self.events: list[dict[str, Any]] = []
        self.preview = ""
        self.deltas = 0
        self.goodbye: dict[str, Any] | None = None

    @property
    def last(self) -> int:
        return self.events[-1]["seq"] if self.events else 0

    @property
    def is_over(self) -> bool:
        """Whether the end of the turn was received."""
        return any(event["kind"] == "turn_ended" for event in self.events)

    def headers(self) -> dict[str, str]:
        return {"accept": "text/event-stream"} | ({"last-event-id": str(self.last)} if self.last else {})

    def listen(self, http: httpx.Client) -> Iterator[str]:
        """The kinds of the events received until the connection ends. A new connection sends the current reply from its start."""
        self.preview = ""
        with http.stream("GET", f"/v1/sessions/{self.session_id}/events", headers=self.headers()) as response:
            assert response.status_code == 200
            for name, id_, data in Pieces(response.iter_lines()):
                yield self._take(name, id_, data)

    def _take(self, name: str, id_: str, data: Any) -> str:
        if name == "end":
            self.goodbye = data
            return "end"
        if name == "delta":
            assert not id_, "live text has no number"
            if data["kind"] == "text":
                self.deltas += 1
                self.preview = data["text"] if data["at"] == 0 else self.preview + data["text"]
            elif data["kind"] == "restarted":
                self.preview = ""
            return "delta"
        assert id_ == str(data["seq"]) == str(self.last + 1), "each event comes once, in order"
        assert len(data["hash"]) == 64
        self.events.append(data)
        if data["kind"] == "model_said":
            whole = text_of(data)
            if not data["body"].get("partial"):
                assert whole.startswith(self.preview), "live text is a prefix of the committed text"
            self.preview = ""
        return str(data["kind"])

    @property
    def text(self) -> str:
        """The complete text according to the events."""
        whole = [e for e in self.events if e["kind"] == "model_said" and not e["body"].get("partial")]
        return "\n\n".join(text_of(event) for event in whole)


def text_of(event: dict[str, Any]) -> str:
    return "".join(part["text"] for part in event["body"]["parts"] if part["type"] == "text")
