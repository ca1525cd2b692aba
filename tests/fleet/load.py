"""A load generator: many clients that use whichever worker answers. `python -m tests.fleet.load` with its parameters as JSON.

Each client has a session and sends one message after another, half of them streamed. It follows the rules of
docs/api.md: a request that was not answered (no connection, a broken one, a status that says so) is sent again, to the next
worker, with the same idempotency key. Every reply is compared with its message. A separate program, so that it can
run on a separate machine.
"""

import asyncio
import itertools
import json
import sys
from typing import Any

import httpx
import msgspec

LATER = (429, 502, 503, 504)
TIMEOUT = 120.0
"""How long one request may take, with all its repeats, before it counts as not answered."""


class Later(Exception):
    """A temporary refusal."""


UNKNOWN = "terminal unknown"
"""The model's reply to a call with an unknown outcome."""


def answers(reply: str, word: str) -> bool:
    """Whether a reply matches its message: it has the word once, or says that the outcome is unknown."""
    return reply.split().count(word) == 1 or UNKNOWN in reply


class Orders(msgspec.Struct):
    urls: list[str]
    key: str
    talkers: int
    tool: str = ""
    """A command that each turn runs; `{word}` in it is replaced by the word of the message."""
    pause: float = 0.0
    read_seconds: float = 30.0
    """How long a client waits for the next chunk before it tries another worker."""


class LoadReport(msgspec.Struct):
    """The report of a load generator."""

    sessions: dict[str, str] = {}
    """The session of each client."""
    said: dict[str, list[str]] = {}
    """The answered messages, in order."""
    again: dict[str, int] = {}
    """Why requests were sent again."""
    unknown: list[str] = []
    """Messages with an unknown outcome: the worker died during the call, and the reply says so."""
    wrong: list[str] = []
    """Wrong replies, and requests without an answer."""


class LoadGenerator:
    def __init__(self, orders: Orders) -> None:
        self._orders = orders
        self._enough = asyncio.Event()
        self.report = LoadReport(sessions={}, said={}, again={}, unknown=[], wrong=[])

    async def run_client(self, name: str, first: int) -> None:
        limits = httpx.Timeout(10, read=self._orders.read_seconds)
        headers = {"authorization": f"Bearer {self._orders.key}", "x-session-key": name}
        self.report.said[name] = []
        async with httpx.AsyncClient(headers=headers, timeout=limits) as http:
            for number in itertools.count(1):
                if self._enough.is_set():
                    return
                word = f"{name}-{number}"
                try:
                    async with asyncio.timeout(TIMEOUT):
                        answer = await self._answer(http, name, word, first + number, stream=number % 2 == 0)
                except TimeoutError:
                    self.report.wrong.append(f"{word}: nobody answered")
                    return
                if not answers(answer, word):
                    self.report.wrong.append(f"{word}: {answer!r}")
                if UNKNOWN in answer:
                    self.report.unknown.append(word)
                self.report.said[name].append(word)
                print(word, flush=True)
                await asyncio.sleep(self._orders.pause)

    async def _answer(self, http: httpx.AsyncClient, name: str, word: str, place: int, *, stream: bool) -> str:
        text = f"{word}\nuse tool terminal {json.dumps({'command': self._orders.tool.format(word=word)})}"
        body = {"model": "holdfast", "stream": stream}
        body["messages"] = [{"role": "user", "content": text if self._orders.tool else word}]
        while True:
            url = self._orders.urls[place % len(self._orders.urls)]
            try:
                return await self._ask(http, name, f"{url}/v1/chat/completions", body, word)
            except httpx.HTTPError as e:
                self._note(type(e).__name__)
            except Later as e:
                self._note(str(e))
            place += 1
            await asyncio.sleep(0.1)

    def _note(self, why: str) -> None:
        self.report.again[why] = self.report.again.get(why, 0) + 1

    async def _ask(self, http: httpx.AsyncClient, name: str, url: str, body: dict[str, Any], word: str) -> str:
        """The reply. Raises Later if there is none yet."""
        async with http.stream("POST", url, json=body, headers={"idempotency-key": word}) as response:
            content = (await response.aread()).decode()
            if response.status_code != 200:
                if response.status_code not in LATER:
                    self.report.wrong.append(f"{word}: {response.status_code} {content}")
                raise Later(f"{response.status_code} {content}")
            self.report.sessions[name] = response.headers["x-session-id"]
            if not body["stream"]:
                return str(json.loads(content)["choices"][0]["message"]["content"])
            return _whole(content)

    async def until_stopped(self) -> None:
        """Run until a line arrives on standard input."""
        async with asyncio.TaskGroup() as group:
            for place in range(self._orders.talkers):
                group.create_task(self.run_client(f"talker{place}", place))
            await asyncio.to_thread(sys.stdin.readline)
            self._enough.set()


def _whole(content: str) -> str:
    """The text of a complete stream. Raises Later with the error otherwise."""
    pieces = [line.removeprefix("data: ") for line in content.splitlines() if line.startswith("data: ")]
    if not pieces or pieces[-1] != "[DONE]":
        raise Later(f"a stream without an end: {content[-200:]}")
    said = ""
    for piece in map(json.loads, pieces[:-1]):
        if "error" in piece:
            raise Later(f"a stream that ended with {piece['error']}")
        said += "".join(choice["delta"].get("content") or "" for choice in piece["choices"])
    return said


if __name__ == "__main__":
    load = LoadGenerator(msgspec.json.decode(sys.argv[1], type=Orders))
    asyncio.run(load.until_stopped())
    print(f"report {msgspec.json.encode(load.report).decode()}", flush=True)
