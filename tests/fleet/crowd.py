"""Many clients that talk to whatever worker answers: `python -m tests.fleet.crowd` with its orders as JSON.

Each talker has a session, and says one thing after another in it, half of them as streams. It keeps to the rules of
docs/api.md: a request that was not answered (no connection, a broken one, a status that says so) is sent again, to the next
worker, under the same idempotency key. Every answer is held against what was asked. A program of its own, so that it can
live on a machine of its own.
"""

import asyncio
import itertools
import json
import sys
from typing import Any

import httpx
import msgspec

LATER = (429, 502, 503, 504)
PATIENCE = 120.0
"""How long one request may take, with all its repeats, before it counts as not answered."""


class Later(Exception):
    """A refusal that may be none another time."""


UNKNOWN = "terminal unknown"
"""What the model makes of a call of which it is not known whether it acted."""


def answers(reply: str, word: str) -> bool:
    """Whether a reply belongs to what was said: it has the word once, or says that nobody knows what came of it."""
    return reply.split().count(word) == 1 or UNKNOWN in reply


class Orders(msgspec.Struct):
    urls: list[str]
    key: str
    talkers: int
    tool: str = ""
    """A command that each turn runs, and that puts out `{word}`, which is replaced by what is said."""
    pause: float = 0.0
    read_seconds: float = 30.0
    """How long a client waits for the next piece of an answer before it asks somebody else."""


class Told(msgspec.Struct):
    """What a crowd has to tell at its end."""

    sessions: dict[str, str] = {}
    """The session of each talker."""
    said: dict[str, list[str]] = {}
    """What was answered, in order."""
    again: dict[str, int] = {}
    """Why requests were sent again."""
    unknown: list[str] = []
    """What nobody knows whether it was done: the worker died in its midst, and that was said."""
    wrong: list[str] = []
    """Answers that were not what was asked for, and requests that nobody answered."""


class Crowd:
    def __init__(self, orders: Orders) -> None:
        self._orders = orders
        self._enough = asyncio.Event()
        self.told = Told(sessions={}, said={}, again={}, unknown=[], wrong=[])

    async def talk(self, name: str, first: int) -> None:
        limits = httpx.Timeout(10, read=self._orders.read_seconds)
        headers = {"authorization": f"Bearer {self._orders.key}", "x-session-key": name}
        self.told.said[name] = []
        async with httpx.AsyncClient(headers=headers, timeout=limits) as http:
            for number in itertools.count(1):
                if self._enough.is_set():
                    return
                word = f"{name}-{number}"
                try:
                    async with asyncio.timeout(PATIENCE):
                        answer = await self._answer(http, name, word, first + number, stream=number % 2 == 0)
                except TimeoutError:
                    self.told.wrong.append(f"{word}: nobody answered")
                    return
                if not answers(answer, word):
                    self.told.wrong.append(f"{word}: {answer!r}")
                if UNKNOWN in answer:
                    self.told.unknown.append(word)
                self.told.said[name].append(word)
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
        self.told.again[why] = self.told.again.get(why, 0) + 1

    async def _ask(self, http: httpx.AsyncClient, name: str, url: str, body: dict[str, Any], word: str) -> str:
        """The answer. Raises Later if there is none yet."""
        async with http.stream("POST", url, json=body, headers={"idempotency-key": word}) as response:
            content = (await response.aread()).decode()
            if response.status_code != 200:
                if response.status_code not in LATER:
                    self.told.wrong.append(f"{word}: {response.status_code} {content}")
                raise Later(f"{response.status_code} {content}")
            self.told.sessions[name] = response.headers["x-session-id"]
            if not body["stream"]:
                return str(json.loads(content)["choices"][0]["message"]["content"])
            return _whole(content)

    async def until_told(self) -> None:
        """Talk until a line comes in."""
        async with asyncio.TaskGroup() as group:
            for place in range(self._orders.talkers):
                group.create_task(self.talk(f"talker{place}", place))
            await asyncio.to_thread(sys.stdin.readline)
            self._enough.set()


def _whole(content: str) -> str:
    """The text of a stream that came to its end. Raises Later with what it said instead."""
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
    crowd = Crowd(msgspec.json.decode(sys.argv[1], type=Orders))
    asyncio.run(crowd.until_told())
    print(f"told {msgspec.json.encode(crowd.told).decode()}", flush=True)
