"""Users send messages while their workers and the broker are stopped and killed at random. Every log is exact afterwards.

`make soak` has fifty users and lasts 40 seconds, or as long as `HOLDFAST_TEST_SECONDS` says.
"""

import asyncio
import os
import random
import signal
import time
import uuid
from collections import Counter
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.api.serving import BRISKLY, events, told
from tests.broker.brokers import Brokers
from tests.sampling import SOAK

SECONDS = float(os.environ.get("HOLDFAST_TEST_SECONDS", "40" if SOAK else "8"))
USERS = 50 if SOAK else 10
LEAST = 3
"""The minimum number of messages of each user."""
TIMEOUT = 300.0
"""How long one request may be tried before it counts as lost."""
SESSION = {"x-session-key": "storm"}


class Storm:
    def __init__(self, broker: Brokers, seed: int) -> None:
        self.broker = broker
        self.chance = random.Random(seed)
        self.names = list(broker.keys)
        self.said: dict[str, list[tuple[str, str]]] = {name: [] for name in self.names}
        """What each user got: the messages and their replies."""
        self.counts: Counter[str] = Counter()
        self.end = time.monotonic() + SECONDS

    async def blow(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            for name in self.names:
                tasks.create_task(self._send_messages(name))
            tasks.create_task(self._strike())
            tasks.create_task(self._strike_the_broker())

    # clients

    async def _send_messages(self, name: str) -> None:
        headers = {"authorization": f"Bearer {self.broker.keys[name]}", **SESSION}
        async with client(self.broker, headers) as http:
            while len(self.said[name]) < LEAST or time.monotonic() < self.end:
                words = f"{name} says {len(self.said[name])}"
                reply = await self._say(http, words, stream=self.chance.random() < 0.5)
                self.said[name].append((words, reply))

    async def _say(self, http: httpx.AsyncClient, words: str, *, stream: bool) -> str:
        """Send a message until there is a complete reply: one request, however often it is sent."""
        model = self.broker.model("brisk") if stream else "scripted:echo"
        body = {"model": model, "messages": [{"role": "user", "content": words}], "stream": stream}
        key, limit = {"idempotency-key": uuid.uuid4().hex}, time.monotonic() + TIMEOUT
        while time.monotonic() < limit:
            try:
                answer = await http.post("/v1/chat/completions", json=body, headers=key)
            except httpx.TransportError:
                self.counts["connections lost"] += 1
            else:
                reply = _reply(answer, stream=stream)
                if reply is not None:
                    self.counts["replies"] += 1
                    return reply
                assert answer.status_code in (200, 503), answer.text
                self.counts["refusals"] += 1
            await asyncio.sleep(0.5)
        raise AssertionError(f"no reply to {words!r}; {self.counts}")

    # kills

    async def _strike(self) -> None:
        while time.monotonic() < self.end:
            name, number = self.chance.choice(self.names), self.chance.choice((signal.SIGKILL, signal.SIGTERM))
            if await asyncio.to_thread(self.broker.strike, name, number):
                self.counts[f"workers {number.name}"] += 1
            await asyncio.sleep(self.chance.uniform(0.1, 0.5))

    async def _strike_the_broker(self) -> None:
        """Killed twice; in a long run also stopped with SIGTERM, which ends all workers."""
        blows = [signal.SIGKILL, signal.SIGKILL] if SECONDS < 120 else [signal.SIGKILL, signal.SIGTERM] * 3
        for number in blows:
            await asyncio.sleep(max(0.0, SECONDS / (len(blows) + 1)))
            await asyncio.to_thread(self.broker.kill if number == signal.SIGKILL else self.broker.stop)
            self.counts[f"broker {number.name}"] += 1
            await asyncio.to_thread(self.broker.restart)


def client(broker: Brokers, headers: dict[str, str]) -> httpx.AsyncClient:
    """Without certificates, which take longest to load."""
    return httpx.AsyncClient(base_url=broker.url, headers=headers, timeout=120, verify=False)


def _reply(answer: httpx.Response, *, stream: bool) -> str | None:
    """The reply in the response, if there is one."""
    if answer.status_code != 200:
        return None
    if not stream:
        return str(answer.json()["choices"][0]["message"]["content"])
    found = events(answer.text)
    if "[DONE]" not in found or any("error" in one for one in found if isinstance(one, dict)):
        return None
    return told(found)


async def _all(http: httpx.AsyncClient, session_id: str, what: str) -> list[dict[str, Any]]:
    """Every event or message of a session, page by page."""
    found: list[dict[str, Any]] = []
    after: int | None = 0
    while after is not None:
        page = (await http.get(f"/v1/sessions/{session_id}/{what}", params={"after": after, "limit": 1000})).json()
        found += page[what]
        after = page["next"]
    return found


async def _check(broker: Brokers, name: str, said: list[tuple[str, str]]) -> None:
    """The user has one session with exactly the messages and replies, once and in order."""
    headers = {"authorization": f"Bearer {broker.keys[name]}"}
    async with client(broker, headers) as http:
        sessions = (await http.get("/v1/sessions")).json()["sessions"]
        assert len(sessions) == 1, name
        log = await _all(http, sessions[0]["id"], "events")
        messages = await _all(http, sessions[0]["id"], "messages")

    assert [event["seq"] for event in log] == list(range(1, sessions[0]["seq"] + 1)), name
    assert [one["content"] for one in messages if one["role"] == "user"] == [words for words, _ in said], name
    whole = [one["content"] for one in messages if one["role"] == "assistant" and not one["partial"]]
    assert whole == [reply for _, reply in said], name
    assert [event["body"]["outcome"] for event in log if event["kind"] == "turn_ended"] == ["done"] * len(said), name


def workers_of(home: Path) -> set[int]:
    """The pids of all workers whose home lies there, by the kernel's own account."""
    found = set()
    for path in Path("/proc").iterdir():
        try:
            words = (path / "cmdline").read_bytes().split(b"\0") if path.name.isdecimal() else []
        except (FileNotFoundError, ProcessLookupError):
            continue
        if b"--fd" in words and any(word.startswith(str(home).encode()) for word in words):
            found.add(int(path.name))
    return found


@pytest.mark.crash
@pytest.mark.timeout(120 + 3 * TIMEOUT + 3 * SECONDS)
async def test_users_notice_nothing_of_repeated_kills(tmp_path: Path) -> None:
    seed = random.randrange(10**6)
    names = [f"user{n:02}" for n in range(USERS)]
    with Brokers(tmp_path / "h", *names) as broker:
        storm = Storm(broker, seed)
        await storm.blow()
        await asyncio.gather(*(_check(broker, name, storm.said[name]) for name in names))
        running = {found.pid for name in names if (found := broker.state(name)) is not None}
        assert workers_of(broker.home) == running, "no worker is left"
        print(f"seed {seed}: {dict(sorted(storm.counts.items()))}, {sum(map(len, storm.said.values()))} exact turns")
        assert await asyncio.to_thread(broker.stop) == 0
        assert workers_of(broker.home) == set()

    replies = {reply for said in storm.said.values() for words, reply in said if reply != f"You said: {words}"}
    assert replies == {BRISKLY}
