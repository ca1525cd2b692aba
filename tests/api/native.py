"""Ways to the native routes. Each answer is held against the type that the OpenAPI document is made of."""

import json
import re
from collections.abc import Iterator
from typing import Any

import httpx
import msgspec

from holdfast.api.native import DOORS
from tests.api.serving import Server
from tests.crash.programs import wait_until

ENDED = ("done", "failed", "interrupted", "cancelled")


def hold_against_its_type(response: httpx.Response) -> None:
    """Raises unless a good answer has exactly the documented fields."""
    path = response.request.url.path
    for door in DOORS:
        fits = re.fullmatch(re.sub(r"\{\w+\}", "[^/]+", door.path), path)
        is_document = response.status_code < 300 and response.headers["content-type"] == "application/json"
        if fits and is_document and door.method == response.request.method and door.answer is not None:
            response.read()
            msgspec.convert(response.json(), door.answer)


def client(server: Server, **options: Any) -> httpx.Client:
    return server.http(event_hooks={"response": [hold_against_its_type]}, **options)


def begin(http: httpx.Client, **body: Any) -> str:
    """The id of a new session."""
    response = http.post("/v1/sessions", json=body)
    assert response.status_code == 201, response.text
    return str(response.json()["id"])


def say(http: httpx.Client, session_id: str, words: str, **headers: str) -> str:
    """The id of a turn that was begun, or waits."""
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
    """Events of a stream, as the standard has them: name, id and data."""

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
    """A client of the stream that keeps to the rules of docs/api.md, and minds that the server does, too."""

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
        """Whether the end of the turn was heard."""
        return any(event["kind"] == "turn_ended" for event in self.events)

    def headers(self) -> dict[str, str]:
        return {"accept": "text/event-stream"} | ({"last-event-id": str(self.last)} if self.last else {})

    def listen(self, http: httpx.Client) -> Iterator[str]:
        """What came, by its kind, for as long as the connection lasts. A new one begins the reply in the making anew."""
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
                assert whole.startswith(self.preview), "what was shown beforehand is the beginning of what was said"
            self.preview = ""
        return str(data["kind"])

    @property
    def text(self) -> str:
        """The whole text, as the events have it."""
        whole = [e for e in self.events if e["kind"] == "model_said" and not e["body"].get("partial")]
        return "\n\n".join(text_of(event) for event in whole)


def text_of(event: dict[str, Any]) -> str:
    return "".join(part["text"] for part in event["body"]["parts"] if part["type"] == "text")
