"""The contract of the `Database` port. Every driver passes this unchanged."""

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager, suppress
from typing import cast

import pytest

from holdfast.model.errors import ReadOnly, Unavailable
from holdfast.store.database import Database, ThreadedDatabase, Transaction
from holdfast.store.repos import meta, workers
from tests.contract.conftest import Spawn
from tests.contract.store_urls import open_place

TIMEOUT = 10.0
"""Seconds after which a test that waits for something gives up."""
MANY = 3_000
"""More writers than a store accepts at once."""
IDENTITY = workers.Identity(host="here", boot="boot-1", pid=1, process_started="1")


class Stumbled(Exception):
    """The error that work in this file raises."""


def put(tx: Transaction, key: str, value: str) -> str:
    meta.put(tx, key, value)
    return value


def put_and_raise(tx: Transaction, key: str) -> None:
    meta.put(tx, key, "must not stay")
    tx.notify("stumbled")
    raise Stumbled(key)


def put_and_clash(tx: Transaction, key: str) -> None:
    """Breaks a constraint: the second worker has the id of the first."""
    meta.put(tx, key, "must not stay")
    for _ in range(2):
        workers.register(tx, f"worker-{key}", "test", IDENTITY, version="1", at=1)


def put_and_notify(tx: Transaction, key: str, topic: str) -> None:
    meta.put(tx, key, "told")
    tx.notify(topic)


@asynccontextmanager
async def busy_writer(database: Database) -> AsyncIterator[None]:
    """Keep a write running, so that further writes may share a commit."""
    started, gate = threading.Event(), threading.Event()

    def hold(tx: Transaction) -> None:
        started.set()
        assert gate.wait(TIMEOUT)

    holder = asyncio.create_task(database.write(hold))
    try:
        assert await asyncio.to_thread(started.wait, TIMEOUT)
        yield
        await asyncio.sleep(0)
    finally:
        gate.set()
        await holder


class Ear:
    """Counts how often a topic woke its listener."""

    def __init__(self, database: Database, topic: str) -> None:
        self._database, self._topic = database, topic
        self._started = asyncio.Event()
        self._woken = asyncio.Condition()
        self.count = 0

    async def __aenter__(self) -> "Ear":
        self._task = asyncio.create_task(self._listen())
        await self._started.wait()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task

    async def _listen(self) -> None:
        async with aclosing(self._database.listen(self._topic)) as wakings:
            await anext(wakings)
            self._started.set()
            async for _ in wakings:
                async with self._woken:
                    self.count += 1
                    self._woken.notify_all()

    async def more_than(self, count: int) -> None:
        async with asyncio.timeout(TIMEOUT), self._woken:
            await self._woken.wait_for(lambda: self.count > count)


async def let_others_run() -> None:
    """Let every task that can run make progress."""
    for _ in range(20):
        await asyncio.sleep(0)


async def woken_equally(one: Ear, other: Ear) -> bool:
    """Whether both were woken equally often. Spurious wake-ups go to all listeners, one after the other."""
    await let_others_run()
    for _ in range(200):
        if one.count == other.count:
            return True
        await asyncio.sleep(0)
    return False


# write


async def test_a_write_passes_its_arguments_and_returns_the_result_of_its_work(database: Database) -> None:
    def work(tx: Transaction, first: str, *, second: str) -> tuple[str, str]:
        return first, second

    assert await database.write(work, "a", second="b") == ("a", "b")


async def test_a_write_is_committed_before_it_returns(database: Database, another: Database) -> None:
    async def write_and_look(number: int) -> str | None:
        await database.write(put, f"key {number}", "there")
        return await another.read(meta.get, f"key {number}")

    async with busy_writer(database):
        looks = [asyncio.create_task(write_and_look(number)) for number in range(50)]

    assert await asyncio.gather(*looks) == ["there"] * 50


async def test_no_write_returns_before_its_shared_commit(database: Database, another: Database) -> None:
    gate = threading.Event()

    def hold(tx: Transaction) -> None:
        assert gate.wait(TIMEOUT)

    async with busy_writer(database):
        answers = [
            asyncio.create_task(database.write(put, "quick", "there")),
            asyncio.create_task(database.write(hold)),
        ]
        await asyncio.sleep(0)
    await let_others_run()
    try:
        assert not answers[0].done() or await another.read(meta.get, "quick") == "there"
    finally:
        gate.set()

    await asyncio.gather(*answers)
    assert await another.read(meta.get, "quick") == "there"


async def test_work_that_raises_leaves_nothing_and_its_error_propagates_unchanged(database: Database) -> None:
    with pytest.raises(Stumbled, match="broken"):
        await database.write(put_and_raise, "broken")

    assert await database.read(meta.get, "broken") is None
    assert await database.write(put, "broken", "mended") == "mended"


@pytest.mark.parametrize(("bad", "error"), [(put_and_raise, Stumbled), (put_and_clash, AssertionError)])
async def test_failing_work_does_not_affect_other_work_of_its_commit(
    database: Database, bad, error: type[Exception]
) -> None:
    async with busy_writer(database):
        writes = [asyncio.create_task(database.write(put, f"good {number}", "there")) for number in range(20)]
        failures = [asyncio.create_task(database.write(bad, f"bad {number}")) for number in range(10)]
        writes += [asyncio.create_task(database.write(put, f"late {number}", "there")) for number in range(20)]
    outcomes = await asyncio.gather(*failures, return_exceptions=True)

    assert all(isinstance(outcome, error) for outcome in outcomes)
    assert await asyncio.gather(*writes) == ["there"] * 40
    for number in range(10):
        assert await database.read(meta.get, f"bad {number}") is None
        assert await database.read(meta.get, f"good {number}") == "there"
        assert await database.read(meta.get, f"late {number}") == "there"


async def test_work_that_violates_a_constraint_leaves_nothing(database: Database) -> None:
    with pytest.raises(AssertionError):
        await database.write(put_and_clash, "clash")

    assert await database.read(meta.get, "clash") is None
    assert await database.read(workers.get, "worker-clash") is None


async def test_work_that_runs_again_counts_once(database: Database) -> None:
    def count(tx: Transaction) -> int:
        number = int(meta.get(tx, "count") or 0) + 1
        meta.put(tx, "count", str(number))
        return number

    async with busy_writer(database):
        counts = [asyncio.create_task(database.write(count)) for _ in range(20)]
        clash = asyncio.create_task(database.write(put_and_clash, "clash"))
        await asyncio.sleep(0)
    with pytest.raises(AssertionError):
        await clash

    assert sorted(await asyncio.gather(*counts)) == list(range(1, 21))
    assert await database.read(meta.get, "count") == "20"


async def test_writers_beyond_the_limit_wait_and_all_succeed(database: Database) -> None:
    async with busy_writer(database):
        writes = [asyncio.create_task(database.write(put, f"key {number}", "there")) for number in range(MANY)]

    assert await asyncio.gather(*writes) == ["there"] * MANY
    assert await database.read(lambda tx: [meta.get(tx, f"key {number}") for number in range(MANY)]) == ["there"] * MANY


async def test_a_cancelled_wait_breaks_nothing(database: Database) -> None:
    async with busy_writer(database):
        writes = [asyncio.create_task(database.write(put, f"key {number}", "there")) for number in range(40)]
        await asyncio.sleep(0)
        for write in writes[::2]:
            write.cancel()
    outcomes = await asyncio.gather(*writes, return_exceptions=True)

    assert all(isinstance(outcome, asyncio.CancelledError) for outcome in outcomes[::2])
    assert outcomes[1::2] == ["there"] * 20
    assert await database.write(put, "after", "there") == "there"
    for number in range(40):
        found = await database.read(meta.get, f"key {number}")
        assert found == "there" or (number % 2 == 0 and found is None), "completely or not at all"


async def test_cancelling_a_write_while_its_work_runs_breaks_nothing(database: Database) -> None:
    started, gate = threading.Event(), threading.Event()

    def slow(tx: Transaction) -> None:
        meta.put(tx, "slow", "there")
        started.set()
        assert gate.wait(TIMEOUT)

    write = asyncio.create_task(database.write(slow))
    assert await asyncio.to_thread(started.wait, TIMEOUT)
    write.cancel()
    with pytest.raises(asyncio.CancelledError):
        await write
    gate.set()

    assert await database.write(put, "after", "there") == "there"
    assert await database.read(meta.get, "slow") in ("there", None)


async def test_two_connections_to_one_store_write_without_loss(database: Database, another: Database) -> None:
    def count(tx: Transaction) -> None:
        meta.put(tx, "count", str(int(meta.get(tx, "count") or 0) + 1))

    await database.write(put, "count", "0")
    await asyncio.gather(*((database, another)[number % 2].write(count) for number in range(100)))

    assert await database.read(meta.get, "count") == "100"


# read


async def test_a_read_passes_its_arguments_and_returns_the_result_of_its_work(database: Database) -> None:
    def work(tx: Transaction, first: str, *, second: str) -> tuple[str, str]:
        return first, second

    assert await database.read(work, "a", second="b") == ("a", "b")


async def test_a_read_sees_every_write_acknowledged_before(database: Database, another: Database) -> None:
    for number in range(50):
        await database.write(put, "counter", str(number))
        assert await database.read(meta.get, "counter") == str(number)
        assert await another.read(meta.get, "counter") == str(number)


async def test_a_read_sees_one_snapshot(database: Database) -> None:
    started, gate = threading.Event(), threading.Event()

    def look_twice(tx: Transaction) -> tuple[str | None, str | None]:
        first = meta.get(tx, "key")
        started.set()
        assert gate.wait(TIMEOUT)
        return first, meta.get(tx, "key")

    await database.write(put, "key", "old")
    look = asyncio.create_task(database.read(look_twice))
    assert await asyncio.to_thread(started.wait, TIMEOUT)
    await database.write(put, "key", "new")
    gate.set()

    assert await look == ("old", "old")
    assert await database.read(meta.get, "key") == "new"


async def test_writing_in_a_read_raises_and_writes_nothing(database: Database) -> None:
    with pytest.raises(ReadOnly):
        await database.read(put, "key", "must not stay")

    assert await database.read(meta.get, "key") is None
    assert await database.write(put, "key", "there") == "there"


async def test_a_read_that_raises_propagates_its_error_and_breaks_nothing(database: Database) -> None:
    def stumble(tx: Transaction) -> None:
        meta.get(tx, "key")
        raise Stumbled

    for _ in range(10):
        with pytest.raises(Stumbled):
            await database.read(stumble)

    assert await database.read(meta.get, "key") is None


async def test_many_reads_and_writes_run_concurrently(database: Database) -> None:
    reads = [database.read(meta.get, "key") for _ in range(100)]
    writes = [database.write(put, "key", "there") for _ in range(100)]

    outcomes = await asyncio.gather(*reads, *writes)

    assert set(outcomes) <= {None, "there"}


# listen


async def test_a_listener_is_woken_at_the_start(database: Database) -> None:
    async with aclosing(database.listen("topic")) as wakings, asyncio.timeout(TIMEOUT):
        await anext(wakings)


async def test_a_listener_is_woken_by_a_notification_and_sees_the_change(database: Database) -> None:
    async with Ear(database, "topic") as ear:
        for number in range(5):
            heard = ear.count
            await database.write(put_and_notify, f"key {number}", "topic")
            await ear.more_than(heard)
            assert await database.read(meta.get, f"key {number}") == "told"


async def test_every_listener_of_a_topic_is_woken(database: Database) -> None:
    async with Ear(database, "topic") as first, Ear(database, "topic") as second:
        heard = first.count, second.count
        await database.write(put_and_notify, "key", "topic")

        await first.more_than(heard[0])
        await second.more_than(heard[1])


async def test_a_listener_is_woken_by_another_connection_to_the_store(database: Database, another: Database) -> None:
    async with Ear(database, "topic") as ear:
        for number in range(3):
            heard = ear.count
            await another.write(put_and_notify, f"key {number}", "topic")
            await ear.more_than(heard)
            assert await database.read(meta.get, f"key {number}") == "told"


@pytest.mark.process
async def test_a_listener_is_woken_by_another_process(database: Database, spawn: Spawn) -> None:
    child = await spawn("write", "key", "told", "topic")
    async with Ear(database, "topic") as ear:
        heard = ear.count
        await child.go()
        while await database.read(meta.get, "key") != "told":
            await ear.more_than(heard)
            heard = ear.count


async def test_a_listener_is_woken_by_other_connections_while_reads_keep_the_store_busy(
    database: Database, another: Database
) -> None:
    async def keep_reading() -> None:
        while True:
            await database.read(lambda tx: [meta.get(tx, "key") for _ in range(200)])

    readers = [asyncio.create_task(keep_reading()) for _ in range(6)]
    async with Ear(database, "topic") as ear:
        for number in range(3):
            heard = ear.count
            await another.write(put_and_notify, f"key {number}", "topic")
            await ear.more_than(heard)
    for reader in readers:
        reader.cancel()
    await asyncio.gather(*readers, return_exceptions=True)


async def test_a_busy_listener_is_woken_at_least_once_for_all_changes(database: Database) -> None:
    async with aclosing(database.listen("topic")) as wakings, asyncio.timeout(TIMEOUT):
        await anext(wakings)
        for number in range(20):
            await database.write(put_and_notify, f"key {number}", "topic")

        await anext(wakings)
        assert await database.read(meta.get, "key 19") == "told"


async def test_failed_work_wakes_no_listener(database: Database) -> None:
    async with Ear(database, "stumbled") as ear, Ear(database, "another topic") as other:
        writes = [database.write(put_and_raise, "key") for _ in range(5)]
        await asyncio.gather(*writes, return_exceptions=True)

        assert await woken_equally(ear, other)


async def test_no_listener_is_woken_before_the_commit(database: Database) -> None:
    told, gate = threading.Event(), threading.Event()

    def tell_and_wait(tx: Transaction) -> None:
        put_and_notify(tx, "key", "topic")
        told.set()
        assert gate.wait(TIMEOUT)

    async with Ear(database, "topic") as ear, Ear(database, "another topic") as other:
        write = asyncio.create_task(database.write(tell_and_wait))
        assert await asyncio.to_thread(told.wait, TIMEOUT)
        assert await woken_equally(ear, other)

        heard = ear.count
        gate.set()
        await write
        await ear.more_than(heard)


async def test_a_closed_listener_blocks_nothing(database: Database) -> None:
    async with Ear(database, "topic"):
        pass

    await database.write(put_and_notify, "key", "topic")

    async with Ear(database, "topic") as ear:
        heard = ear.count
        await database.write(put_and_notify, "key", "topic")
        await ear.more_than(heard)


async def test_a_subscriber_is_called_after_the_commit_until_it_unsubscribes(database: Database) -> None:
    calls = asyncio.Queue[str]()
    first = database.subscribe("topic", lambda: calls.put_nowait("first"))
    second = database.subscribe("topic", lambda: calls.put_nowait("second"))

    async with asyncio.timeout(TIMEOUT):
        await database.write(put_and_notify, "key", "topic")
        while {await calls.get(), await calls.get()} != {"first", "second"}:
            pass
        first()
        while not calls.empty():
            calls.get_nowait()
        await database.write(put_and_notify, "key", "topic")
        assert await calls.get() == "second"
    second()


async def test_closing_ends_the_listeners(place: str) -> None:
    database = await open_place(place)

    async def listen() -> None:
        async for _ in database.listen("topic"):
            started.set()

    started = asyncio.Event()
    listener = asyncio.create_task(listen())
    await started.wait()
    await database.close()

    async with asyncio.timeout(TIMEOUT):
        await listener


# close


async def test_closing_finishes_pending_writes(place: str) -> None:
    database = await open_place(place)
    async with busy_writer(database):
        writes = [asyncio.create_task(database.write(put, f"key {number}", "there")) for number in range(50)]
        await asyncio.sleep(0)
        closing = asyncio.create_task(database.close())
    await closing

    assert await asyncio.gather(*writes) == ["there"] * 50
    again = await open_place(place)
    assert await again.read(meta.get, "key 49") == "there"
    await again.close()


async def test_closing_leaves_no_writer_waiting(place: str) -> None:
    database = await open_place(place)
    async with busy_writer(database):
        writes = [asyncio.create_task(database.write(put, f"key {number}", "there")) for number in range(MANY)]
        await asyncio.sleep(0)
        closing = asyncio.create_task(database.close())
    await closing
    async with asyncio.timeout(TIMEOUT):
        outcomes = await asyncio.gather(*writes, return_exceptions=True)

    again = await open_place(place)
    for number, outcome in enumerate(outcomes):
        expected = "there" if outcome == "there" else None
        assert outcome == "there" or isinstance(outcome, Unavailable)
        assert await again.read(meta.get, f"key {number}") == expected
    await again.close()


async def test_a_closed_store_refuses_reads_and_writes(place: str) -> None:
    database = await open_place(place)
    await database.close()

    with pytest.raises(Unavailable):
        await database.write(put, "key", "value")
    with pytest.raises(Unavailable):
        await database.read(meta.get, "key")


async def test_a_store_may_be_closed_twice(place: str) -> None:
    database = await open_place(place)
    await asyncio.gather(database.close(), database.close())
    await database.close()


async def test_a_closed_store_reopens_with_all_its_data(place: str) -> None:
    for number in range(3):
        database = await open_place(place)
        assert await database.read(meta.get, "visits") == (str(number) if number else None)
        await database.write(put, "visits", str(number + 1))
        await database.close()


# the transaction


async def test_one_is_the_first_row_or_none(database: Database) -> None:
    def work(tx: Transaction) -> tuple[object, object]:
        meta.put(tx, "key", "value")
        return tx.one("meta.get", key="key"), tx.one("meta.get", key="no such key")

    assert await database.write(work) == (("value",), None)


async def test_run_returns_the_number_of_changed_rows_and_all_returns_every_row(database: Database) -> None:
    def work(tx: Transaction) -> tuple[int, int, list[object]]:
        for number in range(3):
            workers.register(tx, f"worker-{number}", "test", IDENTITY, version="1", at=1)
        made = tx.count("meta.put", key="key", value="value")
        missed = tx.count("session_pruning.erase_draft", id="nobody")
        return made, missed, [row[0] for row in tx.all("workers.list_alive")]

    assert await database.write(work) == (1, 0, ["worker-0", "worker-1", "worker-2"])


async def test_many_runs_once_for_each_set_of_parameters(database: Database) -> None:
    await database.write(lambda tx: tx.many("meta.put", ({"key": f"key {n}", "value": str(n)} for n in range(10))))
    await database.write(lambda tx: tx.many("meta.put", []))

    assert await database.read(meta.get, "key 9") == "9"


@pytest.mark.parametrize(
    "text", ["", "'; DROP TABLE session; --", "日本語 🧵 \u202ertl", "line\nbreak\ttab", "a" * 1_000_000]
)
async def test_text_is_returned_unchanged(database: Database, text: str) -> None:
    await database.write(put, "key", text)

    assert await database.read(meta.get, "key") == text


@pytest.mark.parametrize("number", [0, -1, 2**62, -(2**62)])
async def test_integers_are_returned_unchanged(database: Database, number: int) -> None:
    await database.write(workers.register, "worker-1", "test", IDENTITY, version="1", at=number)

    assert (await database.read(workers.get, "worker-1")).started_at == number


# work from other threads


async def test_other_threads_write_and_read_without_waiting(database: Database) -> None:
    threaded = cast("ThreadedDatabase", database)

    def work() -> list[str | None]:
        writes = [threaded.submit_write(put, f"thread-{number}", str(number)) for number in range(50)]
        assert [one.result(TIMEOUT) for one in writes] == [str(number) for number in range(50)]
        reads = [threaded.submit_read(meta.get, f"thread-{number}") for number in range(50)]
        return [one.result(TIMEOUT) for one in reads]

    assert await asyncio.to_thread(work) == [str(number) for number in range(50)]


async def test_a_write_of_another_thread_that_raises_saves_nothing(database: Database) -> None:
    threaded = cast("ThreadedDatabase", database)
    failed = threaded.submit_write(put_and_raise, "raised")
    done = threaded.submit_write(put, "after", "kept")

    assert isinstance(await asyncio.to_thread(failed.exception, TIMEOUT), Stumbled)
    assert await asyncio.to_thread(done.result, TIMEOUT) == "kept"
    assert await database.read(meta.get, "raised") is None


async def test_a_write_of_another_thread_notifies_listeners(database: Database) -> None:
    async with aclosing(database.listen("told by a thread")) as topics:
        await anext(topics)
        cast("ThreadedDatabase", database).submit_write(put_and_notify, "noted", "told by a thread")
        async with asyncio.timeout(TIMEOUT):
            await anext(topics)


async def test_a_closed_store_refuses_work_of_other_threads(database: Database) -> None:
    await database.close()

    with pytest.raises(Unavailable):
        cast("ThreadedDatabase", database).submit_write(put, "late", "x")
    with pytest.raises(Unavailable):
        cast("ThreadedDatabase", database).submit_read(meta.get, "late")
