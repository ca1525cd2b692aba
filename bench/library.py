"""A store of many sessions: what a list and a search cost as it grows, and how much disk it takes."""

import importlib
import importlib.util
import inspect
import statistics
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from bench import stores, texts
from bench.figures import Figure, Goal
from holdfast.store import sessions
from holdfast.store.sqlite import SqliteDatabase

MESSAGES_EACH = 10
SESSIONS_AT_ONCE = 100
TRIES = 30
SEARCH = "holdfast.store.search"
STEADY = Goal("≤", 2)
"""The cost must not grow with the store; up to twice is what caches of a store ten times as large may cost."""


async def measure(folder: Path, *, session_count: int) -> list[Figure]:
    """Everything is measured at a tenth of the size first, then at the whole."""
    path = folder / "library.db"
    db = await stores.new_store(path)
    index = await _open_index(folder / "search.db", db)
    costs: list[dict[str, float]] = []
    filled = 0
    for count in (session_count // 10, session_count):
        for first in range(filled, count, SESSIONS_AT_ONCE):
            await db.write(stores.add_sessions, first, min(SESSIONS_AT_ONCE, count - first), MESSAGES_EACH)
        filled = count
        costs.append(await _costs(db, index, count * MESSAGES_EACH))
    if index is not None:
        await _settled(index.close())
    await db.close()
    return [*_cost_figures(costs, session_count), *_disk_figures(folder, session_count * MESSAGES_EACH)]


async def _open_index(path: Path, db: SqliteDatabase) -> Any:
    if importlib.util.find_spec(SEARCH) is None:
        return None
    return await _settled(importlib.import_module(SEARCH).open_index(path, db))


async def _settled(result: Any) -> Any:
    return await result if inspect.isawaitable(result) else result


async def _costs(db: SqliteDatabase, index: Any, messages: int) -> dict[str, float]:
    """Seconds of each question, medians of many tries."""

    async def list_50() -> object:
        return await db.read(sessions.list_page, sessions.Filters(), limit=50)

    costs = {"list 50 sessions": await _median(list_50)}
    if index is None:
        return costs
    start = time.perf_counter()
    await _settled(index.catch_up())
    costs["index"] = time.perf_counter() - start
    rare = texts.marker(messages // 2)
    for what, query in (
        (f"search for a word of one message ({rare})", rare),
        ("search for a common word", "expression"),
    ):
        question = _asking(index, query)
        assert await question(), f"{query} must be found"
        costs[what.split(" (")[0]] = await _median(question)
    return costs


def _asking(index: Any, query: str) -> Callable[[], Awaitable[object]]:
    async def ask() -> object:
        return await _settled(index.search(query, limit=20))

    return ask


async def _median(question: Callable[[], Awaitable[object]]) -> float:
    took = []
    for _ in range(TRIES):
        start = time.perf_counter()
        await question()
        took.append(time.perf_counter() - start)
    return statistics.median(took)


def _cost_figures(costs: list[dict[str, float]], session_count: int) -> list[Figure]:
    small, large = costs
    figures = []
    for what in large:
        if what == "index":
            continue
        of = f"{session_count:,} sessions" if what.startswith("list") else f"{session_count * MESSAGES_EACH:,} messages"
        figures.append(
            Figure(
                what=f"{what}, of {of}",
                value=f"{large[what] * 1e3:,.2f} ms",
                beside="in a tenth of that",
                judged=large[what] / small[what],
                goal=STEADY,
            )
        )
    if "index" in large:
        messages = session_count * MESSAGES_EACH * 9 // 10
        figures.append(Figure(what="indexing for search", value=f"{messages / large['index']:,.0f} messages/s"))
    else:
        figures.append(Figure(what="search", value="not built yet"))
    return figures


def _disk_figures(folder: Path, messages: int) -> list[Figure]:
    def per_message(*names: str) -> float:
        return sum((folder / name).stat().st_size for name in names if (folder / name).exists()) / messages

    log, search = per_message("library.db"), per_message("search.db")
    wal = per_message("library.db-wal", "search.db-wal")
    return [
        Figure(
            what="disk for a message of 1 KB, log and search",
            value=f"{log:,.0f} + {search:,.0f} bytes",
            judged=log + search if search else None,
            goal=Goal("≤", 3_000, " bytes"),
        ),
        Figure(what="the WAL files beside them", value=f"{wal * messages / 1e6:,.1f} MB in all"),
    ]
