"""The server's own tools can be kept out of requests: by a header, or for all by a setting."""

import json
from pathlib import Path
from typing import Any

from tests.api.serving import Server, ask, text

WEATHER = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object", "properties": {}}}}


def offered(record: Path) -> list[str]:
    """The tools that the model was offered with the last request."""
    request = json.loads(record.read_text().splitlines()[-1])
    return [tool["function"]["name"] for tool in request.get("tools", [])]


def test_a_header_keeps_the_servers_tools_out_of_a_request(upstream: Server, record: Path) -> None:
    with upstream.http() as http:
        ask(http, "hello")
        assert "terminal" in offered(record)

        text(ask(http, "hello", headers={"x-server-tools": "off"}))
        assert offered(record) == []

        text(ask(http, "hello", headers={"x-server-tools": "off"}, tools=[WEATHER]))
        assert offered(record) == ["weather"]

        body: Any = {"model": "holdfast", "input": "hello"}
        assert http.post("/v1/responses", json=body, headers={"x-server-tools": "off"}).status_code == 200
        assert offered(record) == []

        assert ask(http, "hello", headers={"x-server-tools": "maybe"}).json()["error"]["code"] == "invalid_header"


def test_an_auxiliary_request_gets_no_tools_of_the_server(upstream: Server, record: Path) -> None:
    with upstream.http() as http:
        text(ask(http, "Provide a concise, 5-word-or-less title for the conversation"))

    assert offered(record) == []


def test_a_setting_keeps_the_servers_tools_out_of_all_requests(tmp_path: Path, vendor: str, record: Path) -> None:
    with Server(tmp_path / "home", vendor=vendor, server_tools=False) as server, server.http() as http:
        text(ask(http, "hello", headers={"x-server-tools": "on"}))

    assert offered(record) == []
