"""Writes of one process to one session are done in the order in which they were given, also if nobody waits for them."""

import asyncio
import threading
from contextlib import suppress

import pytest

from holdfast.model.event import SessionOpened
from holdfast.store import leases, log, sessions
from holdfast.store.database import Transaction
from holdfast.store.postgres import PostgresDatabase
from holdfast.store.postgres_order import GiveWay, Order
from tests.conftest import NewWorker
from tests.contract.logs import user

PATIENCE = 60.0


async def test_a_draft_that_nobody_waits_for_any_more_is_not_written_after_its_reply(
    database: PostgresDatabase, new_worker: NewWorker
) -> None:
    await database.write(sessions.create, "hf-1", SessionOpened(source="api"), at=1)
    lease = await database.write(leases.take, "hf-1", await new_worker())
    started, gate = threading.Event(), threading.Event()

    def draft(tx: Transaction) -> None:
        started.set()
        assert gate.wait(PATIENCE)
        log.keep_draft(tx, lease, log.Draft("turn-1", "half a", 1))

    def reply(tx: Transaction) -> None:
        log.append(tx, lease, [user("all of it")], at=2)
        log.drop_draft(tx, "hf-1")

    kept = asyncio.create_task(database.write(draft))
    assert await asyncio.to_thread(started.wait, PATIENCE)
    kept.cancel()
    with suppress(asyncio.CancelledError):
        await kept
    replied = asyncio.create_task(database.write(reply))
    await asyncio.sleep(0)
    gate.set()
    await replied

    assert await database.read(log.draft, "hf-1") is None


def test_those_who_name_other_things_do_not_wait_and_those_who_leave_hold_nobody_up() -> None:
    order = Order()
    first, second, third, fourth = (order.draw() for _ in range(4))
    order.enter(first, "a")
    order.enter(second, "b")
    order.leave(third)
    order.leave(second)
    order.enter(fourth, "b")

    order.leave(first)
    order.leave(fourth)
    last = order.draw()
    order.enter(last, "a")
    order.leave(last)


def test_those_who_wait_give_way_to_one_before_them_that_has_no_connection() -> None:
    order = Order()
    first, second = order.draw(), order.draw()
    order.beg(first)

    with pytest.raises(GiveWay):
        order.enter(second, "hf-1")
    order.enter(first, "hf-1")
    order.leave(first)
    order.enter(second, "hf-1")
    order.leave(second)


def test_nobody_gives_way_to_one_behind() -> None:
    order = Order()
    first, second = order.draw(), order.draw()
    order.beg(second)

    order.enter(first, "hf-1")
    order.leave(first)
