"""How fast a PostgreSQL store is beside the same commits made with plain psycopg, on the same server in the same run.

The server is one of our own, which flushes. Plain psycopg is what anybody would write: a thread and a connection for
each session, and the very statements of an append, without our queue, locks by name, marks and event loop; and
beside it the least there is, an insert of the same bytes that commits by itself.
"""

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from bench import stores, texts
from bench.figures import Contestant, Figure, alternate, median, ratio
from holdfast.model.entry import encode
from holdfast.store import log
from holdfast.store.leases import Lease
from holdfast.store.postgres import PostgresDatabase, open_postgres
from holdfast.store.postgres_connection import Link, connect
from holdfast.store.postgres_plain import PlainTransaction
from tests.postgres.cluster import Cluster

COUNTS = (1, 8, 64)


async def measure(folder: Path, *, rounds: int, appends: int) -> list[Figure]:
    cluster = Cluster(durable=True)
    try:
        cluster.start()
        return await _measure(cluster, rounds, appends)
    finally:
        cluster.remove()


async def _measure(cluster: Cluster, rounds: int, appends: int) -> list[Figure]:
    db = await open_postgres(cluster.new_database())
    await db.write(stores.register)
    held = [await db.write(stores.hold, number) for number in range(max(COUNTS))]
    raw_url = cluster.new_database()
    await (await open_postgres(raw_url)).close()
    links = [connect(raw_url) for _ in range(max(COUNTS))]
    links[0].execute("CREATE TABLE bare (id BIGSERIAL PRIMARY KEY, body TEXT NOT NULL)")
    plain = Untold(links[0])
    stores.register(plain)
    raw_held = [stores.hold(plain, number) for number in range(max(COUNTS))]
    contestants: dict[str, Contestant] = {}
    for count in COUNTS:
        each = max(5, appends // count)
        contestants[f"ours {count}"] = partial(_ours, db, held[:count], each)
        contestants[f"same {count}"] = partial(
            _raw, [partial(_same, l, h, each) for l, h in zip(links[:count], raw_held, strict=False)], each
        )
        contestants[f"bare {count}"] = partial(_raw, [partial(_bare, l, each) for l in links[:count]], each)
    results = await alternate(contestants, rounds)
    await db.close()
    for link in links:
        link.close()
    figures = []
    for count in COUNTS:
        figures += [
            Figure(
                what=f"{kind} {count}",
                value=f"{median(results, f'{kind} {count}'):,.0f}/s",
                beside="x",
                judged=ratio(results, f"ours {count}", f"{kind} {count}"),
            )
            for kind in ("ours", "same", "bare")
        ]
    return figures


class Untold(PlainTransaction):
    def notify(self, topic: str) -> None:
        """Nobody listens."""


async def _ours(db: PostgresDatabase, held: list[Lease], each: int) -> float:
    async def one(lease: Lease) -> None:
        for number in range(each):
            await db.write(log.append, lease, [texts.said(number)], at=stores.now())

    start = time.perf_counter()
    await asyncio.gather(*(one(lease) for lease in held))
    return each * len(held) / (time.perf_counter() - start)


async def _raw(works: list[Callable[[], None]], each: int) -> float:
    with ThreadPoolExecutor(len(works)) as threads:
        start = time.perf_counter()
        for future in [threads.submit(work) for work in works]:
            await asyncio.wrap_future(future)
        return each * len(works) / (time.perf_counter() - start)


def _same(link: Link, lease: Lease, count: int) -> None:
    tx = Untold(link)
    for number in range(count):
        with link.transaction():
            log.append(tx, lease, [texts.said(number)], at=stores.now())


def _bare(link: Link, count: int) -> None:
    for number in range(count):
        link.execute("INSERT INTO bare (body) VALUES (%s)", (encode(texts.said(number)),))
