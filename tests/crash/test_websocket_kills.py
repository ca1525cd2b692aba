"""Promise 20 on a WebSocket: what was acknowledged survives a kill, and its stream continues without a gap."""

import json
from pathlib import Path
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from tests.api.serving import KEY, SLOWLY, Server
from tests.sampling import ROUNDS, limit

pytestmark = pytest.mark.crash


@pytest.mark.timeout(limit(2))
def test_promise_20_a_response_on_a_websocket_survives_kills(tmp_path: Path) -> None:
    with Server(tmp_path / "home") as server:
        for number in range(max(3, ROUNDS)):
            body = {"model": server.model("slow"), "input": f"round {number}"}
            events = read_until_killed(server, body, count=(1, 5, 40)[number % 3])
            server.restart()
            with server.openai() as client:
                id_, last = events[0]["response"]["id"], events[-1]["sequence_number"]
                rest = list(client.responses.retrieve(id_, stream=True, starting_after=last))

            final: Any = rest[-1]
            assert (final.response.status, final.response.output_text) == ("completed", SLOWLY)
            numbers = [event["sequence_number"] for event in events] + [event.sequence_number for event in rest]
            assert numbers == list(range(len(numbers))), "no event is missing or comes twice"


@pytest.mark.timeout(limit(1))
def test_promise_20_a_message_that_is_sent_again_after_a_kill_joins_its_turn(tmp_path: Path) -> None:
    body = {"input": "Pay 100 EUR."}
    with Server(tmp_path / "home") as server:
        body["model"] = server.model("slow")
        first = read_until_killed(server, body, count=3)
        server.restart()
        again = read_until_killed(server, body, count=3)

    assert again[0]["response"]["id"] == first[0]["response"]["id"]


def read_until_killed(server: Server, body: dict[str, Any], count: int) -> list[dict[str, Any]]:
    """The events that a client has when the server is killed, which happens after that many."""
    events: list[dict[str, Any]] = []
    address = f"ws://127.0.0.1:{server.port}/v1/responses"
    with connect(address, additional_headers={"authorization": f"Bearer {KEY}"}) as connection:
        connection.send(json.dumps({"type": "response.create", **body}))
        try:
            while True:
                events.append(json.loads(connection.recv(timeout=30)))
                if len(events) == count:
                    server.kill()
        except ConnectionClosed:
            pass  # a kill breaks the connection
    return events
