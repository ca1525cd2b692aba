"""What an append costs far into a session, and what it costs to read a long session back."""

import json
import sqlite3
import statistics
import time
from pathlib import Path

from bench import stores, texts
from bench.figures import Contestant, Figure, Goal, alternate, median, ratio
from holdfast.store.repos import log, sessions
from holdfast.store.repos.leases import Lease
from holdfast.store.sqlite.connection import connect
from holdfast.store.sqlite.driver import SqliteDatabase

DEPTHS = (100, 10_000, 100_000)
RESUMED = 10_000


async def measure(folder: Path, *, rounds: int, appends: int) -> list[Figure]:
    db = await stores.new_store(folder / "grow.db")
    held = {depth: await db.write(stores.hold, depth) for depth in DEPTHS}
    for depth, lease in held.items():
        await stores.fill(db, lease, [texts.said(number) for number in range(depth)])
    growth = await _growth(db, held, rounds, appends)
    resumed = await db.write(stores.hold, 0)
    await stores.fill(db, resumed, [texts.said(number) for number in range(RESUMED)])
    resume = await _resume(db, resumed.session_id, folder, rounds)
    await db.close()
    return [*growth, *resume]


async def _growth(db: SqliteDatabase, held: dict[int, Lease], rounds: int, appends: int) -> list[Figure]:
    def contestant(lease: Lease) -> Contestant:
        return lambda: _append(db, lease, appends)

    results = await alternate({str(depth): contestant(lease) for depth, lease in held.items()}, rounds)
    first, *deeper = (str(depth) for depth in DEPTHS)
    goal = Goal("≤", 1.1)
    return [
        Figure(what=f"one append behind {DEPTHS[0]:,} messages", value=_micros(median(results, first))),
        *(
            Figure(
                what=f"one append behind {int(depth):,} messages",
                value=_micros(median(results, depth)),
                beside=f"behind {DEPTHS[0]:,}",
                judged=ratio(results, depth, first),
                goal=goal,
            )
            for depth in deeper
        ),
    ]


async def _append(db: SqliteDatabase, lease: Lease, count: int) -> float:
    """Seconds of the median append: a pause of the disk says nothing about the depth."""
    took = []
    for number in range(count):
        start = time.perf_counter()
        await db.write(log.append, lease, [texts.said(number)], at=stores.now())
        took.append(time.perf_counter() - start)
    return statistics.median(took)


async def _resume(db: SqliteDatabase, session_id: str, folder: Path, rounds: int) -> list[Figure]:
    """Ours proves every hash and decodes every event; the raw way reads the same rows and parses their JSON."""
    copy = folder / "copy.db"
    connection = connect(db.path)
    connection.execute("VACUUM INTO ?", (str(copy),))
    connection.close()
    raw = sqlite3.connect(copy)

    async def ours() -> float:
        start = time.perf_counter()
        session = await db.read(sessions.get, session_id)
        await db.read(log.read_complete, session)
        return time.perf_counter() - start

    async def plain() -> float:
        start = time.perf_counter()
        query = "SELECT seq, kind, at, hash, body FROM event WHERE session_id = ? ORDER BY seq"
        [(*place, json.loads(body)) for *place, body in raw.execute(query, (session_id,))]
        return time.perf_counter() - start

    results = await alternate({"ours": ours, "plain": plain}, rounds)
    raw.close()
    return [
        Figure(
            what=f"resume of {RESUMED:,} messages, proved",
            value=_millis(median(results, "ours")),
            beside="sqlite3 + json",
            judged=ratio(results, "ours", "plain"),
            goal=Goal("≤", 2),
        ),
        Figure(what="the same rows by sqlite3 + json.loads, unproved", value=_millis(median(results, "plain"))),
    ]


def _micros(seconds: float) -> str:
    return f"{seconds * 1e6:,.0f} µs"


def _millis(seconds: float) -> str:
    return f"{seconds * 1e3:,.1f} ms"
