"""Turns that ask at the same time whether input is queued share one read."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from holdfast.engine.streaming.input_watch import InputWatch
from holdfast.model.errors import Unavailable


class CountingDatabase:
    """Answers each read with the sessions that have input at that time, when it is told to."""

    def __init__(self) -> None:
        self.sessions: set[str] = set()
        self.reads = 0
        self.go_on = asyncio.Event()
        self.go_on.set()
        self.error: Exception | None = None

    async def read(self, work: Callable[..., Any], worker_id: str) -> frozenset[str]:
        self.reads += 1
        found = frozenset(self.sessions)
        await self.go_on.wait()
        if self.error is not None:
            raise self.error
        return found


@pytest.fixture
async def database() -> CountingDatabase:
    return CountingDatabase()


@pytest.fixture
async def watch(database: CountingDatabase) -> InputWatch:
    return InputWatch(database, "w-1")  # type: ignore[arg-type] # only reads


async def test_all_that_ask_at_once_share_a_read(database: CountingDatabase, watch: InputWatch) -> None:
    database.sessions = {"hf-3"}

    found = await asyncio.gather(*(watch.has_input(f"hf-{number}") for number in range(5)))

    assert found == [False, False, False, True, False]
    assert database.reads == 1


async def test_whoever_asks_after_a_read_began_gets_a_later_one(database: CountingDatabase, watch: InputWatch) -> None:
    database.go_on.clear()
    early = asyncio.create_task(watch.has_input("hf-1"))
    while not database.reads:
        await asyncio.sleep(0)
    database.sessions = {"hf-1"}
    late = asyncio.create_task(watch.has_input("hf-1"))
    while database.reads < 2:
        await asyncio.sleep(0)
    database.go_on.set()

    assert [await early, await late] == [False, True]


async def test_a_cancelled_reader_does_not_cancel_the_others(database: CountingDatabase, watch: InputWatch) -> None:
    database.go_on.clear()
    reader, other, cancelled = (asyncio.create_task(watch.has_input("hf-1")) for _ in range(3))
    while not database.reads:
        await asyncio.sleep(0)
    reader.cancel()
    cancelled.cancel()

    assert await other, "it is not known, so it has to look itself"
    assert await asyncio.wait({reader, cancelled}) == ({reader, cancelled}, set())


async def test_a_reader_that_is_cancelled_before_its_read_leaves_nothing_behind(
    database: CountingDatabase, watch: InputWatch
) -> None:
    reader = asyncio.create_task(watch.has_input("hf-1"))
    await asyncio.sleep(0)
    reader.cancel()
    await asyncio.wait({reader})

    assert not await watch.has_input("hf-1")
    assert database.reads == 1


async def test_the_error_of_a_read_goes_to_one_and_the_others_look_themselves(
    database: CountingDatabase, watch: InputWatch
) -> None:
    database.error = Unavailable("the store has been closed")

    found = await asyncio.gather(*(watch.has_input("hf-1") for _ in range(3)), return_exceptions=True)

    assert found == [database.error, True, True]
