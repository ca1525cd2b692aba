"""Promise 1 for conversations: what was acknowledged is there after a kill, and nothing is there in part."""

import threading
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.api.serving import Server
from tests.sampling import ROUNDS, limit

pytestmark = pytest.mark.crash
PER_REQUEST = 3


@pytest.mark.timeout(limit(2))
def test_promise_1_acknowledged_items_and_metadata_survive_kills(tmp_path: Path) -> None:
    with Server(tmp_path / "home") as server:
        for number in range(max(3, ROUNDS)):
            acknowledged = add_until_killed(server, after=2 + 5 * (number % 4))
            server.restart()
            with server.http() as http:
                for id_, count in acknowledged.items():
                    found = http.get(f"/v1/conversations/{id_}/items", params={"order": "asc", "limit": 100}).json()
                    said = [item["content"][0]["text"] for item in found["data"]]
                    assert said == [str(n) for n in range(len(said))], "in their order, none twice"
                    assert len(said) >= count and len(said) % PER_REQUEST == 0, "all of a request or nothing"
                    assert int(http.get(f"/v1/conversations/{id_}").json()["metadata"]["count"]) >= count - PER_REQUEST


def add_until_killed(server: Server, after: int) -> dict[str, int]:
    """Add items until the server is killed, which happens in the background after some requests; what was acknowledged."""
    acknowledged: dict[str, int] = {}
    requests = 0
    killing = threading.Thread(target=server.kill)
    with server.http() as http:
        try:
            while True:
                made = http.post("/v1/conversations", json={"metadata": {"count": "0"}, "items": items(0)}).json()["id"]
                acknowledged[made] = PER_REQUEST
                for _ in range(4):
                    requests += 1
                    if requests == after:
                        killing.start()
                    count = acknowledged[made]
                    body: dict[str, Any] = {"metadata": {"count": str(count)}}
                    http.post(f"/v1/conversations/{made}", json=body).raise_for_status()
                    http.post(f"/v1/conversations/{made}/items", json={"items": items(count)}).raise_for_status()
                    acknowledged[made] = count + PER_REQUEST
        except httpx.TransportError:
            pass  # a kill breaks the connection
    killing.join()
    return acknowledged


def items(first: int) -> list[dict[str, str]]:
    return [{"role": "user", "content": str(n)} for n in range(first, first + PER_REQUEST)]
