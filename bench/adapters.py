"""HoldfastSession of openai-agents beside the SDK's own SQLiteSession, in rounds of one run, both with WAL and FULL."""

import asyncio
import itertools
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from bench import texts
from bench.figures import Figure, Goal, Round, alternate, median, millis, ratio

SESSIONS = 64
LONG = 10_000
OURS, PEER = "HoldfastSession", "SQLiteSession"
MakeSession = Callable[[str], Any]


async def measure(folder: Path, *, rounds: int, appends: int) -> list[Figure]:
    from agents import SQLiteSession

    from holdfast.adapters.openai_agents import HoldfastSession
    from holdfast.adapters.shared_store import close_stores

    files = {OURS: folder / "adapters.db", PEER: folder / "peer.db"}
    makers: dict[str, MakeSession] = {
        OURS: lambda name: HoldfastSession(name, f"sqlite:///{files[OURS]}"),
        PEER: lambda name: SQLiteSession(name, files[PEER]),
    }
    figures: list[Figure] = []
    for what, work, goal in (
        ("durable appends, one session", _one(appends), Goal("≥", 2)),
        ("durable appends, 64 sessions at once", _many(appends // 20), Goal("≥", 6)),
    ):
        results = await alternate({name: work(make) for name, make in makers.items()}, rounds)
        figures.append(_figure(results, what, goal, lambda rate: f"{rate:,.0f}/s"))
    for make in makers.values():
        await make("long").add_items([_item(number) for number in range(LONG)])
    sizes = {name: _size(file) for name, file in files.items()}
    results = await alternate({name: _load(make("long")) for name, make in makers.items()}, rounds)
    figures.append(_figure(results, f"load {LONG:,} items again", Goal("≤", 1.5), millis))
    for name, make in makers.items():
        short = make("short")
        await short.add_items([_item(number) for number in range(100)])
        tries = {"short": _append_cost(short), "long": _append_cost(make("long"))}
        costs = await alternate(tries, rounds)
        growth, limit = ratio(costs, "long", "short"), Goal("≤", 1.1) if name == OURS else None
        what = f"CPU of an append behind {LONG:,} items, {name}"
        figures.append(
            Figure(what=what, value=millis(median(costs, "long")), beside="behind 100", judged=growth, goal=limit)
        )
    close_stores()
    share = sizes[OURS] / sizes[PEER]
    figures.append(
        Figure(
            what="bytes on disk, WAL included", value=f"{sizes[OURS]:,}", beside=PEER, judged=share, goal=Goal("≤", 1.5)
        )
    )
    return figures


def _figure(results: list[Round], what: str, goal: Goal, text: Callable[[float], str]) -> Figure:
    others = {PEER: text(median(results, PEER))}
    judged = ratio(results, OURS, PEER)
    return Figure(what=what, value=text(median(results, OURS)), beside=PEER, judged=judged, goal=goal, others=others)


def _size(file: Path) -> int:
    return sum(one.stat().st_size for one in file.parent.glob(f"{file.name}*"))


def _item(number: int) -> Any:
    return {"role": "assistant", "content": texts.text(number)}


def _one(count: int) -> Callable[[MakeSession], Callable[[], Awaitable[float]]]:
    def contestant(make: MakeSession) -> Callable[[], Awaitable[float]]:
        session = make("one")

        async def run() -> float:
            start = time.perf_counter()
            for number in range(count):
                await session.add_items([_item(number)])
            return count / (time.perf_counter() - start)

        return run

    return contestant


def _many(count: int) -> Callable[[MakeSession], Callable[[], Awaitable[float]]]:
    def contestant(make: MakeSession) -> Callable[[], Awaitable[float]]:
        sessions = [make(f"many-{number}") for number in range(SESSIONS)]

        async def fill(session: Any) -> None:
            for number in range(count):
                await session.add_items([_item(number)])

        async def run() -> float:
            start = time.perf_counter()
            await asyncio.gather(*map(fill, sessions))
            return SESSIONS * count / (time.perf_counter() - start)

        return run

    return contestant


def _load(session: Any) -> Callable[[], Awaitable[float]]:
    async def run() -> float:
        start = time.perf_counter()
        assert len(await session.get_items()) >= LONG
        return time.perf_counter() - start

    return run


def _append_cost(session: Any, times: int = 50) -> Callable[[], Awaitable[float]]:
    numbers = itertools.count()

    async def run() -> float:
        start = time.process_time()
        for _ in range(times):
            await session.add_items([_item(next(numbers))])
        return (time.process_time() - start) / times

    return run
