"""Session layers of others, where they are installed, each at its own default durability."""

import asyncio
import importlib
import importlib.util
import time
from pathlib import Path
from typing import Any

from bench import texts
from bench.figures import Contestant, Figure, Goal, Round, median, ratio

ONE = "openai-agents SQLiteSession, one session"
MANY = "openai-agents SQLiteSession, 64 sessions"


def contestants(folder: Path, appends: int, many: int) -> dict[str, Contestant]:
    """Nothing where openai-agents is not installed."""
    if importlib.util.find_spec("agents") is None:
        return {}
    path = folder / "agents.db"
    sqlite_session: Any = importlib.import_module("agents").SQLiteSession
    sessions = [sqlite_session(f"session-{number}", path) for number in range(many)]
    return {
        ONE: lambda: _append(sessions[:1], appends),
        MANY: lambda: _append(sessions, appends // many),
    }


async def _append(sessions: list[Any], each: int) -> float:
    async def one(session: Any) -> None:
        for number in range(each):
            await session.add_items([{"role": "assistant", "content": texts.text(number)}])

    start = time.perf_counter()
    await asyncio.gather(*(one(session) for session in sessions))
    return each * len(sessions) / (time.perf_counter() - start)


def figures(results: list[Round], ours_one: str, ours_many: str) -> list[Figure]:
    if ONE not in results[0]:
        return [Figure(what="openai-agents", value="not installed: pip install openai-agents")]
    return [
        Figure(
            what=ours,
            value=f"{median(results, ours):,.0f} messages/s",
            beside=f"{name} ({median(results, name):,.0f}/s)",
            judged=ratio(results, ours, name),
            goal=goal,
        )
        for name, ours, goal in ((ONE, ours_one, Goal("≥", 1.2)), (MANY, ours_many, Goal("≥", 6)))
    ]
