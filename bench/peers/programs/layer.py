"""Measures one session layer. Runs in the environment of a peer, or in ours for Holdfast's store.

For each line on standard input it plays one round and prints the figures as a line of JSON: messages per second, and seconds.
"""

import asyncio
import json
import statistics
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Protocol

MANY = 64


class Layer(Protocol):
    """A session layer with one session per name. `fill` may use the fastest way there is to add many messages."""

    async def open(self, folder: Path) -> None: ...
    async def create(self, name: str) -> Any: ...
    async def append(self, session: Any, text: str) -> None: ...
    async def fill(self, session: Any, texts: list[str]) -> None: ...
    async def load(self, name: str) -> int: ...


class Figures:
    """Rounds of one layer over the given texts."""

    def __init__(self, layer: Layer, texts: list[str], lengths: list[int]) -> None:
        self._layer, self._texts, self._lengths = layer, texts, lengths
        self._behind: dict[int, Any] = {}
        self._rounds = 0

    async def prepare(self, folder: Path) -> None:
        await self._layer.open(folder)
        for length in self._lengths:
            self._behind[length] = await self._layer.create(f"behind-{length}")
            texts = (self._texts * (length // len(self._texts) + 1))[:length]
            await self._layer.fill(self._behind[length], texts)

    async def round(self, appends: int, many_appends: int) -> dict[str, float]:
        self._rounds += 1
        one = await self._layer.create(f"one-{self._rounds}")
        many = [await self._layer.create(f"many-{self._rounds}-{number}") for number in range(MANY)]
        figures: dict[str, float] = {}
        figures["one"], figures["cpu"] = await _rate(lambda: self._append(one, appends), appends)
        each = max(1, many_appends // MANY)
        work = [lambda session=session: self._append(session, each) for session in many]
        figures["many"], _ = await _rate(lambda: _together(work), each * MANY)
        for length, session in self._behind.items():
            figures[f"behind-{length}"] = await self._cost(session)
        longest = max(self._behind)
        start = time.perf_counter()
        assert await self._layer.load(f"behind-{longest}") >= longest
        figures["load"] = time.perf_counter() - start
        return figures

    async def _append(self, session: Any, count: int) -> None:
        for number in range(count):
            await self._layer.append(session, self._texts[number % len(self._texts)])

    async def _cost(self, session: Any, times: int = 15) -> float:
        """CPU seconds of one append, as the median."""
        tries = []
        for number in range(times):
            start = time.process_time()
            await self._layer.append(session, self._texts[number])
            tries.append(time.process_time() - start)
        return statistics.median(tries)


async def _together(work: list[Callable[[], Awaitable[None]]]) -> None:
    await asyncio.gather(*(one() for one in work))


async def _rate(work: Callable[[], Awaitable[None]], count: int) -> tuple[float, float]:
    """Messages per second, and CPU seconds per message."""
    start, cpu = time.perf_counter(), time.process_time()
    await work()
    return count / (time.perf_counter() - start), (time.process_time() - cpu) / count


async def _serve(layer: Layer, order: dict[str, Any], texts: list[str]) -> None:
    figures = Figures(layer, texts, order["lengths"])
    await figures.prepare(Path(order["folder"]))
    print("ready", flush=True)
    while await asyncio.to_thread(sys.stdin.readline):
        print(json.dumps(await figures.round(order["appends"], order["many_appends"])), flush=True)


def main(layer: Layer) -> None:
    """Serve rounds until standard input ends."""
    order = json.loads(sys.argv[1])
    asyncio.run(_serve(layer, order, json.loads(Path(order["texts"]).read_text())))
