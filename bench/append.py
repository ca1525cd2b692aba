"""How fast messages become durable: one session, sixty-four, and the same disk without us."""

import asyncio
import queue
import sqlite3
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import apsw

from bench import stores, texts
from bench.figures import Contestant, Figure, Goal, alternate, median, ratio
from holdfast.model.entry import encode
from holdfast.store.repos import log
from holdfast.store.sqlite import migrate
from holdfast.store.sqlite.connection import SqliteTransaction, connect
from holdfast.tasks import PromptFuture

SESSIONS = 64
GROUP = 32
OURS_ONE = "Holdfast, one session"
OURS_MANY = f"Holdfast, {SESSIONS} sessions at once"
SAME = "the same statements on apsw, one by one, FULL"
THREAD = "the same statements on apsw in a thread, one by one, FULL"
"""The least that a program can do whose event loop must not wait for the disk."""
BARE = "bare inserts on apsw, one by one, FULL"


async def measure(folder: Path, *, rounds: int, appends: int) -> list[Figure]:
    db = await stores.new_store(folder / "append.db")
    held = [await db.write(stores.hold, number) for number in range(SESSIONS)]
    contestants: dict[str, Contestant] = {
        OURS_ONE: lambda: stores.appends(db, held[:1], appends),
        OURS_MANY: lambda: stores.appends(db, held, appends // 20),
        SAME: _blocking(_same(folder / "same.db"), appends),
        THREAD: partial(_in_thread, _same(folder / "thread.db"), appends),
        BARE: _blocking(_bare(folder / "bare.db"), appends),
    }
    for level in ("FULL", "NORMAL"):
        for group in (1, GROUP):
            how = "one by one" if group == 1 else f"grouped by {group}"
            work = _plain(folder / f"plain-{level}-{group}.db", level, group)
            contestants[f"sqlite3, {how}, {level}"] = _blocking(work, appends * min(group, 4))
    results = await alternate(contestants, rounds)
    await db.close()
    return [
        *_ours_figures(results),
        *(Figure(what=name, value=_rate(median(results, name))) for name in contestants if not name.startswith("Hold")),
    ]


def _ours_figures(results: list[dict[str, float]]) -> list[Figure]:
    same, thread, one, bare = (
        ratio(results, OURS_ONE, SAME),
        ratio(results, OURS_ONE, THREAD),
        ratio(results, OURS_MANY, OURS_ONE),
        ratio(results, OURS_MANY, BARE),
    )
    rate_one, rate_many = _rate(median(results, OURS_ONE)), _rate(median(results, OURS_MANY))
    return [
        Figure(what=OURS_ONE, value=rate_one, beside="the same on apsw", judged=same, goal=Goal("≥", 0.8)),
        Figure(
            what=OURS_ONE, value=rate_one, beside="the same on apsw in a thread", judged=thread, goal=Goal("≥", 0.8)
        ),
        Figure(what=OURS_MANY, value=rate_many, beside="one session", judged=one, goal=Goal("≥", 6)),
        Figure(what=OURS_MANY, value=rate_many, beside="bare inserts", judged=bare, goal=Goal("≥", 2)),
    ]


def _rate(per_second: float) -> str:
    return f"{per_second:,.0f} messages/s"


def _blocking(work: Callable[[int], None], count: int) -> Contestant:
    async def run() -> float:
        start = time.perf_counter()
        work(count)
        return count / (time.perf_counter() - start)

    return run


async def _in_thread(work: Callable[[int], None], count: int) -> float:
    """Run the work `count` times in another thread. The event loop waits for the end of each before it begins the next."""
    loop = asyncio.get_running_loop()
    waiting: queue.SimpleQueue[PromptFuture[None] | None] = queue.SimpleQueue()

    def serve() -> None:
        while (answer := waiting.get()) is not None:
            work(1)
            loop.call_soon_threadsafe(answer.set_result, None)

    thread = threading.Thread(target=serve)
    thread.start()
    start = time.perf_counter()
    for _ in range(count):
        answer: PromptFuture[None] = PromptFuture(loop)
        waiting.put(answer)
        await answer
    took = time.perf_counter() - start
    waiting.put(None)
    thread.join()
    return count / took


def _same(path: Path) -> Callable[[int], None]:
    """What an append does, without queue, thread and event loop."""
    path.touch(mode=0o600)
    connection = connect(path)
    migrate.migrate(connection, path)
    tx = SqliteTransaction(connection)
    stores.register(tx)
    lease = stores.hold(tx, 0)

    def work(count: int) -> None:
        for number in range(count):
            connection.execute("BEGIN IMMEDIATE")
            log.append(tx, lease, [texts.said(number)], at=stores.now())
            connection.execute("COMMIT")

    return work


def _bare(path: Path) -> Callable[[int], None]:
    path.touch(mode=0o600)
    connection: apsw.Connection = connect(path)
    connection.execute("CREATE TABLE bare (id INTEGER PRIMARY KEY, body TEXT NOT NULL) STRICT")

    def work(count: int) -> None:
        for number in range(count):
            connection.execute("INSERT INTO bare (body) VALUES (?)", (encode(texts.said(number)),))

    return work


def _plain(path: Path, level: str, group: int) -> Callable[[int], None]:
    """The standard library's SQLite, in transactions of `group` messages."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute(f"PRAGMA synchronous = {level}")
    connection.execute("CREATE TABLE plain (id INTEGER PRIMARY KEY, body TEXT NOT NULL)")

    def work(count: int) -> None:
        for first in range(0, count, group):
            connection.execute("BEGIN IMMEDIATE")
            for number in range(first, min(first + group, count)):
                connection.execute("INSERT INTO plain (body) VALUES (?)", (encode(texts.said(number)),))
            connection.execute("COMMIT")

    return work
