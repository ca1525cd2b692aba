"""What a turn costs for a client that names no session and sends its whole history with each request: server CPU per turn."""

import http.client
import json
from collections.abc import Iterable
from contextlib import closing

from bench.figures import Figure, millis
from bench.load_driver import CHAT, SAID
from bench.processes import cpu_seconds
from bench.systems import System

TURNS = 30
WARM_UP_TURNS = 2
"""The first requests store the history, and are not counted."""
MAX_MESSAGES = 20_000
"""The API accepts no more messages in one request."""
TEXT = "Something about the garden, the rain and the bees. " * 2


class StatelessClient:
    """A client without a session, which adds each reply to its history."""

    def __init__(self, system: System, length: int) -> None:
        roles = ("user", "assistant")
        self._messages = [{"role": roles[n % 2], "content": f"{length} {n} {TEXT}"} for n in range(length // 2 * 2)]
        self._endpoint = system.endpoint
        self.request_bytes = 0
        """Of the last request."""

    def talk(self, turns: int) -> None:
        headers = {"authorization": f"Bearer {self._endpoint.key}", "content-type": "application/json"}
        with closing(http.client.HTTPConnection("127.0.0.1", self._endpoint.port)) as connection:
            for _ in range(turns):
                self._messages.append({"role": "user", "content": SAID})
                body = json.dumps({"model": "holdfast", "messages": self._messages}).encode()
                connection.request("POST", CHAT, body, headers)
                response = connection.getresponse()
                answer = response.read()
                assert response.status == 200, answer
                content = json.loads(answer)["choices"][0]["message"]["content"]
                self._messages.append({"role": "assistant", "content": content})
                self.request_bytes = len(body)


def measure(system: System, lengths: Iterable[int]) -> list[Figure]:
    """The rows for every length. The figures include receiving the history and sending it to the model."""
    return [_row(system, length) for length in lengths if length < MAX_MESSAGES]


def _row(system: System, length: int) -> Figure:
    client = StatelessClient(system, length)
    client.talk(WARM_UP_TURNS)
    before = cpu_seconds(system.process)
    client.talk(TURNS)
    cpu = (cpu_seconds(system.process) - before) / TURNS
    return Figure(
        what=f"{length:,} messages sent with each request: server CPU per turn",
        value=f"{millis(cpu)} (a request has {client.request_bytes / 1e6:,.2f} MB)",
        judged=cpu * 1000,
        kind="cpu",
    )
