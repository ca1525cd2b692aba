"""A follower of positions misses nothing, although PostgreSQL assigns them before the commit."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import cast

import pytest

from holdfast.model.event import SessionOpened
from holdfast.model.ids import SESSION, Ids
from holdfast.store.database import Transaction
from holdfast.store.postgres.driver import PostgresDatabase
from holdfast.store.postgres.search import open_table
from holdfast.store.repos import log, sessions
from tests.contract.logs import user
from tests.fakes.clock import FakeClock
from tests.postgres.cluster import cluster, name_of

TIMEOUT = 60.0


class Gate:
    """A write that has its positions and is committed only when released."""

    def __init__(self) -> None:
        self.written, self.open = threading.Event(), threading.Event()

    def say(self, tx: Transaction, session_id: str, text: str, *, fails: bool = False) -> None:
        log.append_unheld(tx, session_id, [user(text)], at=1)
        tx.one("sessions.get", id=session_id)  # wait for the result: the positions are assigned now
        self.written.set()
        assert self.open.wait(TIMEOUT)
        if fails:
            raise InterruptedError("it thought better of it")


@contextmanager
def gate() -> Iterator[Gate]:
    made = Gate()
    try:
        yield made
    finally:
        made.open.set()


@pytest.fixture
async def pair(database: PostgresDatabase, ids: Ids, clock: FakeClock) -> tuple[str, str]:
    names = ids.make(SESSION), ids.make(SESSION)
    for name in names:
        await database.write(sessions.create, name, SessionOpened(source="run"), at=clock.now())
    return names


async def follow(database: PostgresDatabase, after: int) -> tuple[int, list[str]]:
    """Read from a position like a follower; returns the new position and the bodies."""
    row = await database.read(lambda tx: tx.one("log.get_last_position"))
    upto = cast("int", row[0] if row else 0) or 0
    rows = await database.read(lambda tx: tx.all("log.list_after_position", after=after, upto=upto, limit=1_000))
    return max(after, upto), [str(row[5]) for row in rows]


async def test_a_row_that_is_committed_late_is_not_missed(database: PostgresDatabase, pair: tuple[str, str]) -> None:
    place, _ = await follow(database, 0)
    with gate() as slow:
        late = asyncio.create_task(database.write(slow.say, pair[0], "late"))
        assert await asyncio.to_thread(slow.written.wait, TIMEOUT)
        await database.write(log.append_unheld, pair[1], [user("early")], at=1)

        held_back, seen = await follow(database, place)
        assert seen == [], "an earlier position is not committed yet"
    await late

    _, seen = await follow(database, held_back)
    assert ["late" in body for body in seen] == [True, False], "both, in the order of their positions"


async def test_a_row_that_is_never_committed_blocks_nothing(database: PostgresDatabase, pair: tuple[str, str]) -> None:
    place, _ = await follow(database, 0)
    with gate() as dying:
        late = asyncio.create_task(database.write(dying.say, pair[0], "never", fails=True))
        assert await asyncio.to_thread(dying.written.wait, TIMEOUT)
        await database.write(log.append_unheld, pair[1], [user("early")], at=1)
    with pytest.raises(InterruptedError):
        await late

    _, seen = await follow(database, place)
    assert len(seen) == 1 and "early" in seen[0]


async def test_a_transaction_without_an_event_blocks_nothing(database: PostgresDatabase, pair: tuple[str, str]) -> None:
    started, gate_ = threading.Event(), threading.Event()

    def idle(tx: Transaction) -> None:
        tx.one("sessions.get", id=pair[0])
        started.set()
        assert gate_.wait(TIMEOUT)

    place, _ = await follow(database, 0)
    hanging_tool = asyncio.create_task(database.write(idle))
    assert await asyncio.to_thread(started.wait, TIMEOUT)
    await database.write(log.append_unheld, pair[1], [user("early")], at=1)

    _, seen = await follow(database, place)
    gate_.set()
    await hanging_tool
    assert len(seen) == 1


async def test_the_search_index_misses_no_event_of_many_writers(
    database: PostgresDatabase, ids: Ids, clock: FakeClock, url: str
) -> None:
    names = [ids.make(SESSION) for _ in range(8)]
    for name in names:
        await database.write(sessions.create, name, SessionOpened(source="run"), at=clock.now())
    index = await open_table(database)

    async def append_messages(name: str) -> None:
        for number in range(25):
            await database.write(log.append_unheld, name, [user(f"sparrow {number}")], at=number)

    async def keep_up(done: asyncio.Event) -> None:
        while not done.is_set():
            await index.catch_up()

    done = asyncio.Event()
    follower = asyncio.create_task(keep_up(done))
    await asyncio.gather(*map(append_messages, names))
    done.set()
    await follower
    await index.catch_up()

    assert len(await index.search("sparrow", limit=10_000)) == 200
    assert cluster().execute("SELECT count(DISTINCT position) FROM event", name_of(url)) == [(208,)]
    await index.close()
