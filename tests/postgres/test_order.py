"""Writes of one process to one session run in the order of submission, even if they are not awaited."""

import asyncio
import threading
from contextlib import suppress

import pytest

from holdfast.model.event import SessionOpened
from holdfast.store.database import Transaction
from holdfast.store.postgres.driver import PostgresDatabase
from holdfast.store.postgres.write_order import WriteConflict, WriteOrder
from holdfast.store.repos import leases, log, sessions
from tests.conftest import NewWorker
from tests.contract.logs import user

TIMEOUT = 60.0


async def test_an_abandoned_draft_is_not_written_after_its_reply(
    database: PostgresDatabase, new_worker: NewWorker
) -> None:
    await database.write(sessions.create, "hf-1", SessionOpened(source="api"), at=1)
    lease = await database.write(leases.take, "hf-1", await new_worker())
    started, gate = threading.Event(), threading.Event()

    def draft(tx: Transaction) -> None:
        started.set()
        assert gate.wait(TIMEOUT)
        log.save_draft(tx, lease, log.ReplyDraft("turn-1", "half a", 1))

    def reply(tx: Transaction) -> None:
        log.append(tx, lease, [user("all of it")], at=2)
        log.delete_draft(tx, "hf-1")

    kept = asyncio.create_task(database.write(draft))
    assert await asyncio.to_thread(started.wait, TIMEOUT)
    kept.cancel()
    with suppress(asyncio.CancelledError):
        await kept
    replied = asyncio.create_task(database.write(reply))
    await asyncio.sleep(0)
    gate.set()
    await replied

    assert await database.read(log.get_draft, "hf-1") is None


def test_writes_with_other_keys_do_not_wait_and_finished_ones_block_nothing() -> None:
    order = WriteOrder()
    first, second, third, fourth = (order.issue_ticket() for _ in range(4))
    order.enter(first, "a")
    order.enter(second, "b")
    order.leave(third)
    order.leave(second)
    order.enter(fourth, "b")

    order.leave(first)
    order.leave(fourth)
    last = order.issue_ticket()
    order.enter(last, "a")
    order.leave(last)


def test_waiting_writes_yield_to_an_earlier_one_without_a_connection() -> None:
    order = WriteOrder()
    first, second = order.issue_ticket(), order.issue_ticket()
    order.report_no_connection(first)

    with pytest.raises(WriteConflict):
        order.enter(second, "hf-1")
    order.enter(first, "hf-1")
    order.leave(first)
    order.enter(second, "hf-1")
    order.leave(second)


def test_no_write_yields_to_a_later_one() -> None:
    order = WriteOrder()
    first, second = order.issue_ticket(), order.issue_ticket()
    order.report_no_connection(second)

    order.enter(first, "hf-1")
    order.leave(first)
