"""What it costs to be known to be alive, and to look after those who are not, as the open sessions grow in number."""

import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from bench import stores
from bench.figures import Contestant, Figure, Goal, alternate, median, ratio
from holdfast.clock import SystemClock
from holdfast.engine.bus import Bus
from holdfast.engine.hand import Ground
from holdfast.engine.janitor import Janitor, Pace
from holdfast.identity import identity
from holdfast.model.event import SessionOpened
from holdfast.model.identity import Identity
from holdfast.model.ids import WORKER, Ids
from holdfast.store import owners, sessions, workers
from holdfast.store.database import Transaction
from holdfast.store.sqlite import SqliteDatabase, open_sqlite

TRIES = 10
AT_ONCE = 500
"""Sessions in one transaction while a store is filled."""
PACE = Pace(stale_seconds=90, sweep_seconds=60, idle_minutes=60)
STEADY = Goal("≤", 1.5)
"""The cost must not grow with the sessions; half as much again is what the machine's mood may add to so little work."""
DEAD = Identity(host=identity().host, boot=identity().boot, pid=identity().pid, process_started="1")
"""A process of this machine that is gone, because its pid is another's."""


async def measure(folder: Path, *, rounds: int, counts: tuple[int, ...]) -> list[Figure]:
    clock = SystemClock()
    grounds = {count: await _ground(folder / f"open-{count}.db", clock, count) for count in counts}
    contestants: dict[str, Contestant] = {}
    for count, ground in grounds.items():
        janitor = Janitor(ground, identity(), PACE, lambda _: None)
        contestants[f"beat {count}"] = _timed(_beating(ground))
        contestants[f"glance {count}"] = _timed(janitor.glance)
        contestants[f"sweep {count}"] = _timed(janitor.sweep)
    results = await alternate(contestants, rounds)
    reaped = await _reaped(grounds[counts[0]], counts[-1] // 10)
    for ground in grounds.values():
        await ground.database.close()
    return [
        *(_figure(results, what, count, counts[0]) for what in ("beat", "glance", "sweep") for count in counts),
        reaped,
    ]


def _figure(results: list[dict[str, float]], what: str, count: int, fewest: int) -> Figure:
    name = f"one {what} with {count:,} open sessions"
    value = f"{median(results, f'{what} {count}') * 1e3:,.2f} ms"
    if count == fewest:
        return Figure(what=name, value=value)
    grown = ratio(results, f"{what} {count}", f"{what} {fewest}")
    return Figure(what=name, value=value, beside=f"with {fewest:,}", judged=grown, goal=STEADY)


def _timed(work: Callable[[], Awaitable[object]]) -> Contestant:
    """Seconds of the median try: a pause of the disk says nothing about the number of sessions."""

    async def run() -> float:
        took = []
        for _ in range(TRIES):
            start = time.perf_counter()
            await work()
            took.append(time.perf_counter() - start)
        return statistics.median(took)

    return run


def _beating(ground: Ground) -> Callable[[], Awaitable[object]]:
    """A beat as the worker's own thread makes it."""

    def beat() -> int:
        return ground.database.write_from_thread(workers.beat, ground.worker_id, at=stores.now())

    return lambda: asyncio.to_thread(beat)


async def _ground(path: Path, clock: SystemClock, count: int) -> Ground:
    """A store whose sessions are all well: a living worker has half of them open, the others are the API's, just used."""
    db = await open_sqlite(path)
    ids = Ids(clock.now)
    worker_id = ids.make(WORKER)
    await db.write(workers.register, worker_id, "bench", identity(), version="0", at=stores.now())
    await _open(db, worker_id, count)
    return Ground(db, clock, ids, Bus(), worker_id)


async def _open(db: SqliteDatabase, owner: str, count: int, first: int = 0) -> None:
    for start in range(first, first + count, AT_ONCE):
        await db.write(_open_some, owner, range(start, min(start + AT_ONCE, first + count)))


def _open_some(tx: Transaction, owner: str, numbers: range) -> None:
    for number in numbers:
        session_id, owned = stores.session_id(number), number % 2 == 0
        opened = SessionOpened(source="chat" if owned else "api", model="scripted:bench")
        sessions.create(tx, session_id, opened, at=stores.now())
        if owned:
            owners.attach(tx, session_id, owner)


async def _reaped(ground: Ground, count: int) -> Figure:
    """One sweep after the death of a worker with many sessions."""
    db = ground.database
    assert isinstance(db, SqliteDatabase)
    dead = ground.ids.make(WORKER)
    await db.write(workers.register, dead, "bench", DEAD, version="0", at=stores.now())
    await _open(db, dead, count * 2, first=10**6)
    start = time.perf_counter()
    found = await Janitor(ground, identity(), PACE, lambda _: None).sweep()
    took = time.perf_counter() - start
    assert len(found.deeds) == count + 1, "all of them, and their worker"
    return Figure(
        what=f"a sweep that ends {count:,} sessions of a dead worker", value=f"{count / took:,.0f} sessions/s"
    )
