"""Turns through the API of a real server process, over a model that answers at once: how many, how long, how much memory.

The client is written by hand and sends the same bytes over and over, so that what is measured is the server. Beside it, in
the same round, runs a server with the same HTTP stack that keeps nothing (`bench/bare.py`): what ours takes beyond it is added.
"""

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import psutil

from bench.figures import Figure, Goal

KEY = "hfk-for-the-benchmark"
AT_ONCE = (1, 32, 256)
IN_SESSION = 10
"""Turns in one session: enough to be a conversation, and few enough that the scripted model need not read long."""
IDLE = 192
"""Sessions that are begun and left alone: with those before them no more than a worker remembers."""
ADDED_GOAL = Goal("≤", 10, " ms")
"""A fortieth of the 400 ms that hermes-agent 0.19.0 was seen to add to a turn elsewhere; it is not measured here."""
RATE_GOAL = Goal("≥", 100, " turns/s")
"""Forty times the turns that it was seen to serve in a second, elsewhere."""
IDLE_GOAL = Goal("≤", 80, " MB")
SESSION_GOAL = Goal("≤", 20, " KB")
BUSY_GOAL = Goal("≤", 200, " KB")
"""A session with a turn in hand: its connection, its log in memory and its tasks. Ours: there is nothing to compare it with."""
CONFIG = f"""
model = "scripted:echo"
[api]
key = "{KEY}"
"""


class Form(msgspec.Struct, frozen=True):
    """How turns are asked for."""

    path: str
    stream: bool

    def __str__(self) -> str:
        return f"{self.path.rpartition('/v1/')[2]}, {'streamed' if self.stream else 'in one piece'}"

    def body(self) -> bytes:
        words: object = "Are you there?"
        said = {"messages": [{"role": "user", "content": words}]} if "chat" in self.path else {"input": words}
        return json.dumps({"model": "holdfast", "stream": self.stream, **said}).encode()


FORMS = [Form(path, stream) for path in ("/v1/chat/completions", "/v1/responses") for stream in (False, True)]


class Client:
    """One connection that talks to one session."""

    def __init__(self, port: int, name: str, form: Form) -> None:
        self._port = port
        content = form.body()
        head = (
            f"POST {form.path} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {KEY}\r\n"
            f"x-session-key: {name}\r\ncontent-type: application/json\r\ncontent-length: {len(content)}\r\n\r\n"
        )
        self._request = head.encode() + content
        self._end = b"\r\n0\r\n\r\n" if form.stream else b""
        self.took: list[float] = []

    async def talk(self, turns: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        for _ in range(turns):
            start = time.perf_counter()
            writer.write(self._request)
            head = await reader.readuntil(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 200"), head
            if self._end:
                await reader.readuntil(self._end)
            else:
                length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
                await reader.readexactly(length)
            self.took.append(time.perf_counter() - start)
        writer.close()
        await writer.wait_closed()


async def measure(folder: Path, *, turns: int) -> list[Figure]:
    home = folder / "home"
    home.mkdir()
    (home / "config.toml").write_text(CONFIG)
    (home / "config.toml").chmod(0o600)
    command = ["-m", "holdfast", "--home", str(home), "serve", "--port", "0"]
    async with _started(*command) as (process, port), _started("-m", "bench.bare") as (_, bare):
        idle = process.memory_info().rss
        figures = [Figure(what="memory of an idle server", value=_mb(idle), judged=idle / 2**20, goal=IDLE_GOAL)]
        figures.append(await _memory_of_sessions(process, port))
        for count in AT_ONCE:
            for form in FORMS:
                figures += await _contest(process, port, bare, count, max(1, turns // count // IN_SESSION), form)
    return figures


@asynccontextmanager
async def _started(*command: str) -> AsyncIterator[tuple[psutil.Process, int]]:
    """A server in a process of its own, and its port, which it says first."""
    process = await asyncio.create_subprocess_exec(sys.executable, *command, stdout=asyncio.subprocess.PIPE)
    assert process.stdout is not None
    try:
        said = (await process.stdout.readline()).decode()
        yield psutil.Process(process.pid), int(said.split(";")[0].rpartition(":")[2])
    finally:
        process.terminate()
        await process.wait()


async def _memory_of_sessions(process: psutil.Process, port: int) -> Figure:
    """Measured first, while the server remembers every one of them: later ones only take the place of others."""
    await _round(port, "warm", 32, 1, 2, FORMS[0])
    before = process.memory_info().rss
    await _round(port, "idle", 32, IDLE // 32, 2, FORMS[0])
    each = (process.memory_info().rss - before) / IDLE / 1024
    what = f"memory for each of {IDLE} idle sessions"
    return Figure(what=what, value=f"{each:,.1f} KB", judged=each, goal=SESSION_GOAL)


async def _contest(process: psutil.Process, port: int, bare: int, count: int, rounds: int, form: Form) -> list[Figure]:
    """So many sessions at once, on our server and on the bare one."""
    name = f"{form}".replace(" ", "").replace(",", "-")
    await _round(port, f"{name}-before", min(count, 8), 1, 2, form)
    before = process.memory_info().rss
    sampling = asyncio.create_task(_highest(process))
    seconds, took = await _round(port, name, count, rounds, IN_SESSION, form)
    sampling.cancel()
    peak = await sampling
    bare_seconds, bare_took = await _round(bare, name, count, rounds, IN_SESSION, form)
    rate, bare_rate = len(took) / seconds, len(bare_took) / bare_seconds
    middle, late = (1000 * (_share(took, share) - _share(bare_took, share)) for share in (0.5, 0.99))
    turns = Figure(
        what=f"{count} session{'s' if count > 1 else ''} at once, {form}",
        value=f"{rate:,.0f} turns/s, added p50 {middle:,.1f} ms, p99 {late:,.1f} ms (bare: {bare_rate:,.0f}/s)",
        judged={1: middle, 32: rate}.get(count),
        goal={1: ADDED_GOAL, 32: RATE_GOAL}.get(count),
    )
    # What one round has given back the next one takes again: only the first of a number says what they need.
    return [turns, *([_memory(peak - before, count)] if count > 1 and form == FORMS[0] else [])]


def _memory(grown: float, count: int) -> Figure:
    """What the sessions took at their height, each. One alone says nothing."""
    each = max(0.0, grown) / count / 1024
    return Figure(what="  memory, each, at the height", value=f"{each:,.0f} KB", judged=each, goal=BUSY_GOAL)


async def _highest(process: psutil.Process) -> int:
    """The most memory that was seen until it is cancelled."""
    most = 0
    try:
        while True:
            most = max(most, process.memory_info().rss)
            await asyncio.sleep(0.05)
    except asyncio.CancelledError:
        return most


async def _round(port: int, name: str, count: int, rounds: int, turns: int, form: Form) -> tuple[float, list[float]]:
    """So many at once, each with one short session after another; the whole time, and that of each turn."""
    took: list[float] = []

    async def one(place: int) -> None:
        for number in range(rounds):
            client = Client(port, f"{name}-{count}-{place}-{number}", form)
            await client.talk(turns)
            took.extend(client.took)

    start = time.perf_counter()
    await asyncio.gather(*map(one, range(count)))
    return time.perf_counter() - start, sorted(took)


def _share(took: list[float], share: float) -> float:
    return took[int(share * (len(took) - 1))]


def _mb(size: float) -> str:
    return f"{size / 2**20:,.0f} MB"
