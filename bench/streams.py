"""Many streams at once on one worker, at the pace of a real model: its CPU, its event-loop lag, and how late the words are.

The lag is what another request sees: the time of `GET /health`, measured from a process of its own while all streams run.
"""

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec

from bench import systems
from bench.figures import Figure, Goal, millis
from bench.load_driver import Load, drive, share
from bench.processes import cpu_seconds, stop
from bench.systems import System

STREAMS = 1_000
PER_SECOND = 20
WORDS = 600
IDLE_SECONDS = 2.0
PROBE_SECONDS = 8.0
START_SECONDS = 18.0
"""The most to wait until every stream has begun; the words last longer than this and the probe together."""
CPU_GOAL = Goal("≤", 1_000 / STREAMS / PER_SECOND * 1_000, " ms")
"""For a thousand words: one core for all streams."""


class Result(msgspec.Struct, frozen=True):
    """Streams while the lag was measured; CPU in cores at that time, and in seconds for the whole load; seconds of a health
    check, sorted; and the load."""

    streams: int
    cores: float
    cpu: float
    idle_lag: list[float]
    lag: list[float]
    load: Load


async def measure(folder: Path) -> list[Figure]:
    async with (
        systems.model(words=WORDS, per_second=PER_SECOND) as model,
        systems.holdfast(folder / "home", model.endpoint.port) as ours,
    ):
        return describe(await _stream(ours, model.endpoint.port))


async def _stream(ours: System, model_port: int) -> Result:
    async with _probing(ours.endpoint.port) as probe:
        idle = await probe(IDLE_SECONDS)
        first = cpu_seconds(ours.process)
        endpoint = msgspec.structs.replace(ours.endpoint, words=WORDS)
        load = asyncio.create_task(asyncio.to_thread(drive, endpoint, "stream", sessions=STREAMS, turns=1))
        streams = await asyncio.to_thread(_wait_until_begun, model_port)
        before, start = cpu_seconds(ours.process), time.perf_counter()
        lag = await probe(PROBE_SECONDS)
        cores = (cpu_seconds(ours.process) - before) / (time.perf_counter() - start)
        streams = min(streams, systems.ask_model(model_port, "streams"))
        found = await load
        return Result(streams, cores, cpu_seconds(ours.process) - first, idle, lag, found)


def _wait_until_begun(model_port: int) -> int:
    """Wait until all streams have begun, but not until the first ones end; return how many have."""
    deadline = time.perf_counter() + START_SECONDS
    while (count := systems.ask_model(model_port, "streams")) < STREAMS and time.perf_counter() < deadline:
        time.sleep(0.2)
    return count


@asynccontextmanager
async def _probing(port: int) -> AsyncIterator[Callable[[float], Awaitable[list[float]]]]:
    """Yield a function that measures the lag for some seconds."""
    pipe = asyncio.subprocess.PIPE
    command = [sys.executable, "-m", "bench.lag_probe", str(port)]
    process = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe, limit=2**24)
    assert process.stdin is not None and process.stdout is not None
    writer, reader = process.stdin, process.stdout

    async def probe(seconds: float) -> list[float]:
        writer.write(f"{seconds}\n".encode())
        return sorted(json.loads(await reader.readline()))

    try:
        yield probe
    finally:
        await stop(process)


def describe(result: Result) -> list[Figure]:
    ideal = WORDS / PER_SECOND
    late = [took - ideal for took in result.load.turns]
    streams = f"{STREAMS:,} streams of {PER_SECOND} words/s"
    per_thousand = result.cpu / (STREAMS * WORDS) * 1_000
    return [
        Figure(
            what=f"{streams}: CPU of the worker per 1,000 words",
            value=millis(per_thousand),
            judged=per_thousand * 1000,
            goal=CPU_GOAL,
            kind="cpu",
        ),
        Figure(
            what=f"{streams}: open at once; CPU of the worker meanwhile",
            value=f"{result.streams:,}; {result.cores:.2f} cores",
            judged=result.streams,
            goal=Goal("≥", STREAMS, " streams"),
        ),
        Figure(
            what=f"{streams}: event-loop lag (time of GET /health), p50; p99; most",
            value=_three(result.lag),
            others={"idle": _three(result.idle_lag)},
        ),
        Figure(
            what=f"{streams}: between two pieces of a reply, p50; p99; most",
            value=_three(result.load.gaps),
            others={"model": millis(1 / PER_SECOND)},
        ),
        Figure(
            what=f"{streams}: a reply of {ideal:.0f} s ends later by, p50; p99; most",
            value=_three(late),
        ),
    ]


def _three(values: list[float]) -> str:
    return "; ".join(millis(share(values, fraction)) for fraction in (0.5, 0.99, 1.0))
