"""A store of many sessions: what a list and a search cost as it grows, and how much disk it takes."""

import time
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

from bench import stores, texts
from bench.figures import Figure, Goal
from holdfast.store.repos import session_list
from holdfast.store.search.index import SearchIndex, open_index
from holdfast.store.sqlite.driver import SqliteDatabase

MESSAGES_EACH = 10
SESSIONS_AT_ONCE = 100
TRIES = 30
STEADY = Goal("≤", 2)
"""The cost must not grow with the store; up to twice is what caches of a store ten times as large may cost."""
LIST = "list 50 sessions"
INDEXING = "indexing for search"


async def measure(folder: Path, *, session_count: int) -> list[Figure]:
    """Everything is measured at a tenth of the size first, then at the whole."""
    db = await stores.new_store(folder / "library.db")
    index = await open_index(folder / "search.db", db)
    costs: list[dict[str, float]] = []
    filled = 0
    for count in (session_count // 10, session_count):
        for first in range(filled, count, SESSIONS_AT_ONCE):
            await db.write(stores.add_sessions, first, min(SESSIONS_AT_ONCE, count - first), MESSAGES_EACH)
        start = time.perf_counter()
        await index.catch_up()
        indexing = (time.perf_counter() - start) / (count - filled) / MESSAGES_EACH
        costs.append({INDEXING: indexing, **await _costs(db, index, count * MESSAGES_EACH)})
        filled = count
    await index.close()
    await db.close()
    small, large = costs
    return [*_cost_figures(small, large, session_count), *_disk_figures(folder, session_count * MESSAGES_EACH)]


async def _costs(db: SqliteDatabase, index: SearchIndex, messages: int) -> dict[str, float]:
    """Seconds of each question, the best of many tries: whatever else the machine does only adds to them."""
    queries = {
        "search for a rare word": texts.name(messages // 2),
        "search for a number of nine digits": texts.numeral(messages // 2),
        "search for a common word": "expression",
    }
    costs = {LIST: await _best(partial(db.read, session_list.list_page, session_list.SessionFilters(), limit=50))}
    for what, query in queries.items():
        question = partial(index.search, query, limit=20)
        assert await question(), f"{query} must be found"
        costs[what] = await _best(question)
    return costs


async def _best(question: Callable[[], Awaitable[object]]) -> float:
    took = []
    for _ in range(TRIES):
        start = time.perf_counter()
        await question()
        took.append(time.perf_counter() - start)
    return min(took)


def _cost_figures(small: dict[str, float], large: dict[str, float], session_count: int) -> list[Figure]:
    figures = []
    for what, cost in large.items():
        if what == INDEXING:
            continue
        of = f"{session_count:,} sessions" if what == LIST else f"{session_count * MESSAGES_EACH:,} messages"
        figures.append(
            Figure(
                what=f"{what}, of {of}",
                value=f"{cost * 1e3:,.2f} ms",
                beside="in a tenth of that",
                judged=cost / small[what],
                goal=STEADY,
            )
        )
    return [*figures, Figure(what=INDEXING, value=f"{1 / large[INDEXING]:,.0f} messages/s")]


def _disk_figures(folder: Path, messages: int) -> list[Figure]:
    def size(*names: str) -> int:
        return sum((folder / name).stat().st_size for name in names if (folder / name).exists())

    log, search = size("library.db") / messages, size("search.db") / messages
    wal = size("library.db-wal", "search.db-wal")
    return [
        Figure(
            what="disk for a message of 1 KB, log and search",
            value=f"{log:,.0f} + {search:,.0f} bytes",
            judged=log + search,
            goal=Goal("≤", 2_500, " bytes"),
            kind="disk",
        ),
        Figure(what="the WAL files beside them", value=f"{wal / 1e6:,.1f} MB in all"),
    ]
