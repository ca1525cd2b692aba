"""Promise 20: a response whose server is killed can be resumed after the last event, and its text is complete."""

from pathlib import Path
from typing import Any

import httpx2
import openai
import pytest

from tests.api.serving import SLOWLY, Server
from tests.sampling import ROUNDS, limit

pytestmark = pytest.mark.crash


@pytest.mark.timeout(limit(3))
def test_promise_20_a_response_is_resumed_across_kills(tmp_path: Path) -> None:
    with Server(tmp_path / "home") as server:
        for number in range(max(4, ROUNDS)):
            events = read_until_killed(server, words=20 + 17 * (number % 5))
            read_on(server, events)

            final = events[-1].response
            assert final.status == "completed" and final.output_text == SLOWLY
            assert whole_text(events, final.output[0].id) == SLOWLY
            numbers = [event.sequence_number for event in events]
            assert numbers == list(range(len(events))), "none is missing and none comes twice"


def read_until_killed(server: Server, words: int) -> list[Any]:
    """The events up to a kill, which happens when the client has that many words."""
    events: list[Any] = []
    killed = False
    with server.openai() as client:
        stream = client.responses.create(model=server.model("slow"), input="Hello", stream=True, background=True)
        try:
            for event in stream:
                events.append(event)
                if not killed and whole_text(events).count(" ") >= words:
                    server.kill()
                    killed = True
        except (openai.APIError, httpx2.HTTPError):
            pass  # a kill breaks the connection
    return events


def read_on(server: Server, events: list[Any]) -> None:
    server.restart()
    with server.openai() as client:
        id_ = events[0].response.id
        last = events[-1].sequence_number
        events += client.responses.retrieve(id_, stream=True, starting_after=last)


def whole_text(events: list[Any], item_id: str | None = None) -> str:
    told = [event for event in events if event.type == "response.output_text.delta"]
    return "".join(event.delta for event in told if item_id in (None, event.item_id))
