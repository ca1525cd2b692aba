"""`holdfast mcp --http`: the official client with a key, killed servers, and requests that are refused by name."""

import json
import signal
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.api.serving import KEY, SLOWLY, write_config
from tests.mcp_server.conftest import HttpServer

# The library alone takes a second to import, in every server that is started.
pytestmark = [pytest.mark.process, pytest.mark.timeout(180)]
MODES = ["auto", pytest.param("legacy", marks=pytest.mark.soak)]
PING = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
ACCEPT = {"accept": "application/json, text/event-stream", "content-type": "application/json"}
HEADERS = {**ACCEPT, "authorization": f"Bearer {KEY}"}


@pytest.mark.parametrize("mode", MODES)
async def test_a_connected_client_survives_a_server_that_is_killed_during_a_turn(
    http_server: HttpServer, mode: str
) -> None:
    async with http_server.connect(mode) as mcp:
        first = await mcp.say(await mcp.open(key="notes"), "Hello")
        session = await mcp.open(model=f"scripted:{http_server.home}/slow.json")
        sent = await mcp.call("send_message", session=session, text="Tell me", idempotency_key="a")
        http_server.kill()
        http_server.start()
        again = await mcp.call("send_message", session=session, text="Tell me", idempotency_key="a")
        done = await mcp.call("follow_turn", session=session, turn_id=sent["turn_id"])
        read = await mcp.call("read_session", session=session)
    http_server.process.signal(signal.SIGTERM)

    assert first["text"] == "You said: Hello"
    assert (again["turn_id"], again["state"]) == (sent["turn_id"], "repeated")
    assert (done["state"], done["text"]) == ("done", SLOWLY)
    assert [one["role"] for one in read["messages"]].count("user") == 1
    assert http_server.process.wait() == 0


def refusal(answer: httpx.Response) -> tuple[int, object]:
    """The status, and the name or JSON-RPC code of the error."""
    return answer.status_code, answer.json()["error"]["code"]


BAD: list[tuple[str, dict[str, Any], tuple[int, object]]] = [
    ("no key", {"headers": ACCEPT}, (401, "invalid_api_key")),
    ("wrong key", {"headers": {**ACCEPT, "authorization": "Bearer wrong"}}, (401, "invalid_api_key")),
    ("DNS rebinding", {"headers": {**HEADERS, "host": "evil.example:8421"}}, (403, "host_not_allowed")),
    ("a foreign page", {"headers": {**HEADERS, "origin": "https://evil.example"}}, (403, "origin_not_allowed")),
    ("a strange origin", {"headers": {**HEADERS, "origin": "http://[::"}}, (403, "origin_not_allowed")),
    ("oversized", {"content": b'"' + b"x" * 2**20 + b'"'}, (413, "request_too_large")),
    ("oversized, in chunks", {"content": (b"x" * 2**16 for _ in range(20))}, (413, "request_too_large")),
    ("not JSON", {"content": b"{"}, (400, -32700)),
    ("not JSON-RPC", {"content": b"[1, 2]"}, (400, -32602)),
    ("another path", {"url": "/"}, (404, "not_found")),
    ("a version that does not exist", {"headers": {**HEADERS, "mcp-protocol-version": "1999-01-01"}}, (400, -32602)),
]


def test_bad_requests_are_refused_by_name(tmp_path: Path) -> None:
    write_config(tmp_path / "home", max_body_mb=1)
    server = HttpServer(tmp_path / "home")
    with server.process, httpx.Client(base_url=f"http://127.0.0.1:{server.port}", timeout=50) as web:
        found = {}
        for name, options, _ in BAD:
            request = {"url": "/mcp", "headers": HEADERS, "content": json.dumps(PING).encode(), **options}
            found[name] = refusal(web.post(**request))
        local = web.post("/mcp", headers={**HEADERS, "origin": "http://localhost:3000"}, json=PING)

    assert found == {name: expected for name, _, expected in BAD}
    assert local.status_code == 200
