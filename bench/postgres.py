"""How fast a PostgreSQL store is beside the same commits made with plain psycopg, on the same server in the same run.

The server is one of our own, which flushes. Plain psycopg is what anybody would write: a thread and a connection for
each session, and the very statements of an append, without our queue, locks by name, marks and event loop. Beside
it stands the least there is, an insert of the same bytes that commits by itself; and, for many sessions, such inserts
on one connection in a pipeline, one commit for as many as there are sessions.
"""

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from bench import engine_turns, postgres_size, stores, texts
from bench.figures import Contestant, Figure, Goal, Round, alternate, median, ratio
from holdfast.engine.admission.open_session import OpenRequest
from holdfast.engine.engine import Engine
from holdfast.model.entry import encode
from holdfast.model.event import Event
from holdfast.store.postgres import migrate
from holdfast.store.postgres.connection import Link, connect
from holdfast.store.postgres.driver import open_postgres
from holdfast.store.postgres.named_queries import NamedQueryTransaction
from holdfast.store.repos import log
from holdfast.store.repos.leases import Lease
from tests.postgres.cluster import Cluster

COUNTS = (1, 8, 64)
OURS, SAME, BARE = "ours", "the same on psycopg", "bare inserts on psycopg"
PIPELINED = "bare inserts in a pipeline"
TURNS, PAIRS = "turns", "the two appends of a turn on psycopg"
TURN_SHARE = 5
"""A turn takes several appends; so many fewer are played."""
Work = Callable[[int], None]


async def measure(folder: Path, *, rounds: int, appends: int) -> list[Figure]:
    cluster = Cluster(durable=True)
    try:
        cluster.start()
        speed = await _speed(cluster, folder, rounds, appends)
        return [*speed, *await postgres_size.measure(cluster, folder)]
    finally:
        cluster.remove()


async def _speed(cluster: Cluster, folder: Path, rounds: int, appends: int) -> list[Figure]:
    db = await open_postgres(cluster.new_database())
    await db.write(stores.register)
    held = [await db.write(stores.hold, number) for number in range(max(COUNTS))]
    engine = await engine_turns.engine_on(db, folder)
    opened = [(await engine.open(OpenRequest(source="api"))).session.id for _ in held]
    with _plain(cluster.new_database()) as plain:
        contest: dict[str, Contestant] = {}
        for count in COUNTS:
            each = max(5, appends // count)
            few = max(2, each // TURN_SHARE)
            contest |= {
                f"{OURS} {count}": partial(stores.appends, db, held[:count], each),
                f"{SAME} {count}": partial(_at_once, plain.appending(count), each),
                f"{BARE} {count}": partial(_at_once, plain.inserting(count), each),
                f"{PIPELINED} {count}": partial(_at_once, [plain.pipelining(count)], each),
                f"{TURNS} {count}": partial(_turns, engine, opened[:count], few),
                f"{PAIRS} {count}": partial(_at_once, plain.in_pairs(count), few),
            }
        results = await alternate(contest, rounds)
    await engine.close()
    await db.close()
    return [figure for count in COUNTS for figure in _figures(results, count)]


def _figures(results: list[Round], count: int) -> list[Figure]:
    def of(name: str) -> str:
        return f"{median(results, f'{name} {count}'):,.0f}"

    def beside(name: str, other: str) -> float:
        return ratio(results, f"{name} {count}", f"{other} {count}")

    who = "one session" if count == 1 else f"{count} sessions at once"
    goal = Goal("≥", 0.7)
    append, turn = f"{of(OURS)} messages/s", f"{of(TURNS)} turns/s"
    return [
        Figure(what=f"appends, {who}", value=append, beside=SAME, judged=beside(OURS, SAME), goal=goal),
        Figure(what=f"appends, {who}", value=append, beside=BARE, judged=beside(OURS, BARE)),
        Figure(
            what=f"appends, {who}",
            value=append,
            beside=PIPELINED,
            judged=beside(OURS, PIPELINED) / count,
            goal=Goal("≥", 0.5) if count == max(COUNTS) else None,
        ),
        Figure(what=f"turns, {who}", value=turn, beside=PAIRS, judged=beside(TURNS, PAIRS)),
        *(Figure(what=f"{name}, {who}", value=f"{of(name)}/s") for name in (SAME, BARE, PAIRS)),
        Figure(
            what=f"{PIPELINED}, {count} a commit", value=f"{median(results, f'{PIPELINED} {count}') * count:,.0f}/s"
        ),
    ]


class Untold(NamedQueryTransaction):
    """The statements of a repository on a plain connection."""

    def notify(self, topic: str) -> None:
        """Nobody listens."""


class Plain:
    """A store of our tables that plain psycopg writes to: a connection and a held session for each thread."""

    def __init__(self, links: Sequence[Link]) -> None:
        self._links = links
        tx = Untold(links[0])
        stores.register(tx)
        self._held = [stores.hold(tx, number) for number in range(len(links))]

    def appending(self, count: int) -> list[Work]:
        return [partial(_append, *pair) for pair in self._first(count)]

    def in_pairs(self, count: int) -> list[Work]:
        return [partial(_append_pairs, *pair) for pair in self._first(count)]

    def inserting(self, count: int) -> list[Work]:
        return [partial(_insert, link) for link in self._links[:count]]

    def pipelining(self, count: int) -> Work:
        return partial(_insert_in_groups, self._links[0], count)

    def _first(self, count: int) -> list[tuple[Link, Lease]]:
        return list(zip(self._links, self._held, strict=True))[:count]


@contextmanager
def _plain(url: str) -> Iterator[Plain]:
    links: list[Link] = []
    try:
        links += [connect(url) for _ in range(max(COUNTS))]
        migrate.migrate_store(links[0], url)
        links[0].execute("CREATE TABLE bare (id BIGSERIAL PRIMARY KEY, body TEXT NOT NULL)")
        yield Plain(links)
    finally:
        for link in links:
            link.close()


def _append(link: Link, lease: Lease, count: int) -> None:
    for number in range(count):
        _append_one(link, lease, [texts.said(number)])


def _append_pairs(link: Link, lease: Lease, count: int) -> None:
    """What comes in and what goes out, each committed by itself."""
    for number in range(count):
        turn = texts.turn(number)
        _append_one(link, lease, turn[:2])
        _append_one(link, lease, turn[2:])


def _append_one(link: Link, lease: Lease, events: Sequence[Event]) -> None:
    with link.transaction():
        log.append(Untold(link), lease, events, at=stores.now())


def _insert(link: Link, count: int) -> None:
    for number in range(count):
        link.execute("INSERT INTO bare (body) VALUES (%s)", (encode(texts.said(number)),))


def _insert_in_groups(link: Link, size: int, count: int) -> None:
    for first in range(count):
        with link.pipeline(), link.transaction():
            for number in range(first, first + size):
                link.execute("INSERT INTO bare (body) VALUES (%s)", (encode(texts.said(number)),))


async def _turns(engine: Engine, session_ids: list[str], each: int) -> float:
    return 1 / await engine_turns.timed(engine, session_ids, each)


async def _at_once(works: list[Work], each: int) -> float:
    """How much a second plain threads get done, each on its own connection."""
    with ThreadPoolExecutor(len(works)) as threads:
        start = time.perf_counter()
        for future in [threads.submit(work, each) for work in works]:
            await asyncio.wrap_future(future)
        return each * len(works) / (time.perf_counter() - start)
