"""Our session layers beside those of the frameworks, in rounds of one run. All write before they return.

SQLite is used with WAL and FULL, except by ADK, whose service chooses the rollback journal and FULL itself.
"""

import asyncio
import itertools
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path

from bench.figures import Figure, Goal, Kind, Round, alternate, median, millis, ratio
from bench.framework_layers import (
    AdkLayer,
    ClaudeLayer,
    Framework,
    FrameworkLayer,
    LangGraphLayer,
    OpenAiLayer,
    TranscriptFile,
)

SESSIONS = 64
LONG = 10_000
SHORT = 100
Run = Callable[[], Awaitable[float]]


async def measure(folder: Path, *, rounds: int, appends: int) -> list[Figure]:
    from holdfast.adapters.shared_store import close_stores

    figures: list[Figure] = []
    async with AsyncExitStack() as stack:
        for make in (_openai_agents, _adk, _langgraph, _claude):
            figures += await _measure_one(await make(folder, stack), rounds, appends)
        close_stores()
    return figures


async def _openai_agents(folder: Path, stack: AsyncExitStack) -> Framework:
    from agents import SQLiteSession

    from holdfast.adapters.openai_agents import HoldfastSession

    ours, theirs = folder / "openai-agents.db", folder / "openai-agents-peer.db"
    layers: dict[str, FrameworkLayer] = {
        "HoldfastSession": OpenAiLayer(lambda name: HoldfastSession(name, f"sqlite:///{ours}")),
        "SQLiteSession": OpenAiLayer(lambda name: SQLiteSession(name, theirs)),
    }
    return Framework("openai-agents", layers, [ours, theirs])


async def _adk(folder: Path, stack: AsyncExitStack) -> Framework:
    from google.adk.sessions.sqlite_session_service import SqliteSessionService

    from holdfast.adapters.adk import HoldfastSessionService

    ours, theirs = folder / "adk.db", folder / "adk-peer.db"
    layers: dict[str, FrameworkLayer] = {
        "HoldfastSessionService": AdkLayer(HoldfastSessionService(f"sqlite:///{ours}")),
        "SqliteSessionService": AdkLayer(SqliteSessionService(str(theirs))),
    }
    return Framework("adk", layers, [ours, theirs], appends=2)


async def _langgraph(folder: Path, stack: AsyncExitStack) -> Framework:
    from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

    from holdfast.adapters.langgraph import HoldfastSaver

    ours, theirs = folder / "langgraph.db", folder / "langgraph-peer.db"
    layers: dict[str, FrameworkLayer] = {
        "HoldfastSaver": LangGraphLayer(HoldfastSaver(f"sqlite:///{ours}")),
        "SqliteSaver": LangGraphLayer(await stack.enter_async_context(AsyncSqliteSaver.from_conn_string(str(theirs)))),
    }
    return Framework("langgraph", layers, [ours, theirs], appends=2, bytes_goal=0.01, steps=1_000)


async def _claude(folder: Path, stack: AsyncExitStack) -> Framework:
    from holdfast.adapters.claude_agent_sdk import HoldfastSessionStore

    ours, theirs = folder / "claude.db", folder / "claude-peer"
    layers: dict[str, FrameworkLayer] = {
        "HoldfastSessionStore": ClaudeLayer(HoldfastSessionStore(f"sqlite:///{ours}")),
        "file with fsync": ClaudeLayer(TranscriptFile(theirs)),
    }
    return Framework("claude-agent-sdk", layers, [ours, theirs], has_goals=False)


async def _measure_one(framework: Framework, rounds: int, appends: int) -> list[Figure]:
    names, numbers = list(framework.layers), itertools.count()
    steps = appends // framework.appends
    for layer in framework.layers.values():
        for number in range(framework.steps):
            await layer.append("steps", number)
    figures = [_bytes(framework)] if framework.steps else []
    for what, run, goal in (
        ("durable appends, one session", _append_to_one(steps, numbers), Goal("≥", 2)),
        ("durable appends, 64 sessions at once", _append_to_many(max(10, steps // 20), numbers), Goal("≥", 6)),
    ):
        results = await alternate({name: run(layer) for name, layer in framework.layers.items()}, rounds)
        figures.append(_figure(framework, results, what, goal, lambda rate: f"{rate:,.0f}/s"))
    for layer in framework.layers.values():
        await layer.fill("long", LONG)
    figures += [] if framework.steps else [_bytes(framework)]
    results = await alternate({name: _load(layer) for name, layer in framework.layers.items()}, rounds)
    figures.append(_figure(framework, results, f"load {LONG:,} items again", Goal("≤", 1.5), millis))
    for name, layer in framework.layers.items():
        await layer.fill("short", SHORT)
        tries = {session: _append_cost(layer, session, numbers) for session in ("short", "long")}
        costs = await alternate(tries, rounds)
        growth, limit = ratio(costs, "long", "short"), Goal("≤", 1.1) if name == names[0] else None
        what = f"{framework.name}: CPU of an append behind {LONG:,} items, {name}"
        value = millis(median(costs, "long"))
        figures.append(Figure(what=what, value=value, beside=f"behind {SHORT}", judged=growth, goal=limit))
    return figures


def _bytes(framework: Framework) -> Figure:
    """After the same appends to both. What is in our WAL, which keeps its size of at most 8 MB, is moved into the file first."""
    from holdfast.adapters.shared_store import close_stores

    if framework.steps:
        close_stores()
        ours, theirs = (file.stat().st_size for file in framework.files)
    else:
        ours, theirs = map(_size, framework.files)
    kind: Kind = "disk"
    return Figure(
        what=f"{framework.name}: bytes on disk, " + ("without the WAL" if framework.steps else "WAL included"),
        value=f"{ours:,}",
        beside=list(framework.layers)[1],
        judged=ours / theirs,
        goal=Goal("≤", framework.bytes_goal) if framework.has_goals else None,
        others={list(framework.layers)[1]: f"{theirs:,}"},
        kind=kind,
    )


def _figure(framework: Framework, results: list[Round], what: str, goal: Goal, text: Callable[[float], str]) -> Figure:
    ours, theirs = framework.layers
    others = {theirs: text(median(results, theirs))}
    return Figure(
        what=f"{framework.name}: {what}",
        value=text(median(results, ours)),
        beside=theirs,
        judged=ratio(results, ours, theirs),
        goal=goal if framework.has_goals else None,
        others=others,
    )


def _size(file: Path) -> int:
    return sum(one.stat().st_size for one in [*file.parent.glob(f"{file.name}*"), *file.glob("*")] if one.is_file())


def _append_to_one(count: int, numbers: Iterator[int]) -> Callable[[FrameworkLayer], Run]:
    def contestant(layer: FrameworkLayer) -> Run:
        async def run() -> float:
            session, start = f"one-{next(numbers)}", time.perf_counter()
            for number in range(count):
                await layer.append(session, number)
            return count / (time.perf_counter() - start)

        return run

    return contestant


def _append_to_many(count: int, numbers: Iterator[int]) -> Callable[[FrameworkLayer], Run]:
    def contestant(layer: FrameworkLayer) -> Run:
        async def fill(session: str) -> None:
            for number in range(count):
                await layer.append(session, number)

        async def run() -> float:
            sessions = [f"many-{next(numbers)}" for _ in range(SESSIONS)]
            start = time.perf_counter()
            await asyncio.gather(*map(fill, sessions))
            return SESSIONS * count / (time.perf_counter() - start)

        return run

    return contestant


def _load(layer: FrameworkLayer) -> Run:
    async def run() -> float:
        start = time.perf_counter()
        assert await layer.load("long") >= LONG
        return time.perf_counter() - start

    return run


def _append_cost(layer: FrameworkLayer, session: str, numbers: Iterator[int], times: int = 20) -> Run:
    async def run() -> float:
        start = time.process_time()
        for _ in range(times):
            await layer.append(session, next(numbers))
        return (time.process_time() - start) / times

    return run
