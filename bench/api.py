"""Turns through the API of a real server process, over a model that answers at once: how many, how long, how much memory.

The client is written by hand and sends the same bytes over and over, so that what is measured is the server.
"""

import asyncio
import json
import statistics
import sys
import time
from pathlib import Path

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
IDLE_GOAL = Goal("≤", 80, " MB")
SESSION_GOAL = Goal("≤", 20, " KB")
CONFIG = f"""
model = "scripted:echo"
[api]
key = "{KEY}"
"""


class Client:
    """One connection that talks to one session."""

    def __init__(self, port: int, name: str, *, stream: bool) -> None:
        self._port = port
        body = {"model": "holdfast", "messages": [{"role": "user", "content": "Are you there?"}], "stream": stream}
        content = json.dumps(body).encode()
        head = (
            f"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {KEY}\r\n"
            f"x-session-key: {name}\r\ncontent-type: application/json\r\ncontent-length: {len(content)}\r\n\r\n"
        )
        self._request = head.encode() + content
        self._end = b"[DONE]\n\n\r\n0\r\n\r\n" if stream else b""
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
    command = [sys.executable, "-m", "holdfast", "--home", str(home), "serve", "--port", "0"]
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    assert process.stdout is not None
    try:
        said = (await process.stdout.readline()).decode()
        port = int(said.split(";")[0].rpartition(":")[2])
        return await _figures(process.pid, port, turns)
    finally:
        process.terminate()
        await process.wait()


async def _figures(pid: int, port: int, turns: int) -> list[Figure]:
    process = psutil.Process(pid)
    idle = process.memory_info().rss
    figures = [Figure(what="memory of an idle server", value=_mb(idle), judged=idle / 2**20, goal=IDLE_GOAL)]
    figures.append(await _memory_of_sessions(process, port))
    for count in AT_ONCE:
        for stream in (False, True):
            figures += await _contest(port, count, max(1, turns // count // IN_SESSION), stream=stream)
    return figures


async def _memory_of_sessions(process: psutil.Process, port: int) -> Figure:
    """Measured first, while the server remembers every one of them: later ones only take the place of others."""
    await _round(port, "warm", 32, 1, 2, stream=False)
    before = process.memory_info().rss
    await _round(port, "idle", 32, IDLE // 32, 2, stream=False)
    each = (process.memory_info().rss - before) / IDLE / 1024
    what = f"memory for each of {IDLE} idle sessions"
    return Figure(what=what, value=f"{each:,.1f} KB", judged=each, goal=SESSION_GOAL)


async def _contest(port: int, count: int, rounds: int, *, stream: bool) -> list[Figure]:
    seconds, took = await _round(port, f"{stream}", count, rounds, IN_SESSION, stream=stream)
    form = "streamed" if stream else "in one piece"
    middle, late = 1000 * statistics.median(took), 1000 * took[int(0.99 * (len(took) - 1))]
    what = f"turns with {count} session{'s' if count > 1 else ''} at once, {form}"
    return [
        Figure(
            what=what,
            value=f"{len(took) / seconds:,.0f}/s, p50 {middle:,.1f} ms, p99 {late:,.1f} ms",
            judged=middle if count == 1 else None,
            goal=ADDED_GOAL if count == 1 else None,
        )
    ]


async def _round(
    port: int, name: str, count: int, rounds: int, turns: int, *, stream: bool
) -> tuple[float, list[float]]:
    """So many at once, each with one short session after another; the whole time, and that of each turn."""
    took: list[float] = []

    async def one(place: int) -> None:
        for number in range(rounds):
            client = Client(port, f"{name}-{count}-{place}-{number}", stream=stream)
            await client.talk(turns)
            took.extend(client.took)

    start = time.perf_counter()
    await asyncio.gather(*map(one, range(count)))
    return time.perf_counter() - start, sorted(took)


def _mb(size: float) -> str:
    return f"{size / 2**20:,.0f} MB"
