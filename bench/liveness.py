"""What it costs to be known to be alive, and to look after those who are not, as the open sessions grow in number."""

import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from bench import stores
from bench.figures import Contestant, Figure, Goal, alternate, median, ratio
from holdfast.clock import SystemClock
from holdfast.engine.liveness.janitor import Janitor, JanitorSettings
from holdfast.engine.services import EngineServices
from holdfast.engine.streaming.bus import Bus
from holdfast.model.event import SessionOpened
from holdfast.model.ids import WORKER, Ids
from holdfast.model.process_identity import Identity
from holdfast.process_lookup import current_identity
from holdfast.store.database import Transaction
from holdfast.store.repos import ownership, sessions, workers
from holdfast.store.sqlite.driver import SqliteDatabase, open_sqlite

TRIES = 10
AT_ONCE = 500
"""Sessions in one transaction while a store is filled."""
PACE = JanitorSettings(stale_seconds=90, sweep_seconds=60, idle_minutes=60)
STEADY = Goal("≤", 1.5)
"""The cost must not grow with the sessions; half as much again is what the machine's mood may add to so little work."""
DEAD = Identity(
    host=current_identity().host, boot=current_identity().boot, pid=current_identity().pid, process_started="1"
)
"""A process of this machine that is gone, because its pid is another's."""


async def measure(folder: Path, *, rounds: int, counts: tuple[int, ...]) -> list[Figure]:
    clock = SystemClock()
    grounds = {count: await _services(folder / f"open-{count}.db", clock, count) for count in counts}
    contestants: dict[str, Contestant] = {}
    for count, services in grounds.items():
        janitor = Janitor(services, current_identity(), PACE, lambda _: None)
        contestants[f"beat {count}"] = _timed(_beating(services))
        contestants[f"check_workers {count}"] = _timed(janitor.check_workers)
        contestants[f"sweep {count}"] = _timed(janitor.sweep)
    results = await alternate(contestants, rounds)
    reaped = await _reaped(grounds[counts[0]], counts[-1] // 10)
    for services in grounds.values():
        await services.database.close()
    return [
        *(_figure(results, what, count, counts[0]) for what in ("beat", "check_workers", "sweep") for count in counts),
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


def _beating(services: EngineServices) -> Callable[[], Awaitable[object]]:
    """A beat as the worker's own thread makes it."""

    def beat() -> int:
        return services.database.write_from_thread(workers.record_heartbeat, services.worker_id, at=stores.now())

    return lambda: asyncio.to_thread(beat)


async def _services(path: Path, clock: SystemClock, count: int) -> EngineServices:
    """A store whose sessions are all well: a living worker has half of them open, the others are the API's, just used."""
    db = await open_sqlite(path)
    ids = Ids(clock.now)
    worker_id = ids.make(WORKER)
    await db.write(workers.register, worker_id, "bench", current_identity(), version="0", at=stores.now())
    await _open(db, worker_id, count)
    return EngineServices(db, clock, ids, Bus(), worker_id, current_identity())


async def _open(db: SqliteDatabase, owner: str, count: int, first: int = 0) -> None:
    for start in range(first, first + count, AT_ONCE):
        await db.write(_open_some, owner, range(start, min(start + AT_ONCE, first + count)))


def _open_some(tx: Transaction, owner: str, numbers: range) -> None:
    for number in numbers:
        session_id, owned = stores.session_id(number), number % 2 == 0
        opened = SessionOpened(source="chat" if owned else "api", model="scripted:bench")
        sessions.create(tx, session_id, opened, at=stores.now())
        if owned:
            ownership.attach(tx, session_id, owner)


async def _reaped(services: EngineServices, count: int) -> Figure:
    """One sweep after the death of a worker with many sessions."""
    db = services.database
    assert isinstance(db, SqliteDatabase)
    dead = services.ids.make(WORKER)
    await db.write(workers.register, dead, "bench", DEAD, version="0", at=stores.now())
    await _open(db, dead, count * 2, first=10**6)
    start = time.perf_counter()
    found = await Janitor(services, current_identity(), PACE, lambda _: None).sweep()
    took = time.perf_counter() - start
    assert len(found.actions) == count + 1, "all of them, and their worker"
    return Figure(
        what=f"a sweep that ends {count:,} sessions of a dead worker", value=f"{count / took:,.0f} sessions/s"
    )
