"""The writing threads, with a connection that only records."""

import asyncio
import threading
from collections.abc import Callable
from typing import Any, cast

from holdfast.model.errors import Invalid
from holdfast.store.database import Transaction
from holdfast.store.postgres.retrying_connection import RetryingConnection
from holdfast.store.postgres.write_job import PostgresWriteJob
from holdfast.store.postgres.write_order import WriteOrder
from holdfast.store.postgres.write_threads import WRITERS, WriteThreads
from holdfast.store.repos import sessions
from holdfast.tasks import PromptFuture

TIMEOUT = 60.0
Work = Callable[[Transaction], object]


class RecordingConnection:
    """Records which writes would share a transaction."""

    is_connected = True

    def __init__(self) -> None:
        self.groups: list[list[PostgresWriteJob]] = []

    def write_together(self, run: Any) -> None:
        self.groups.append([job for job, _ in run.keywords["group"]])


class BlockedThreads:
    """Threads that are all busy with one write each, until they are released."""

    def __init__(self) -> None:
        self._order = WriteOrder()
        self._gate, self._started = threading.Event(), threading.Semaphore(0)
        self.connection = RecordingConnection()
        line = cast("RetryingConnection", self.connection)
        self._threads = WriteThreads(self._order, lambda: line, self._write_alone, lambda jobs: None)
        self.alone: list[PostgresWriteJob] = []

    async def start(self) -> None:
        for number in range(WRITERS):
            self.put(of(f"hf-block-{number}"))
            assert await asyncio.to_thread(self._started.acquire, timeout=TIMEOUT)

    def put(self, work: Work) -> PostgresWriteJob:
        answer: PromptFuture[Any] = PromptFuture(asyncio.get_running_loop())
        job = PostgresWriteJob(work, work, self._order.issue_ticket(), answer)
        self._threads.put(job)
        return job

    async def finish(self) -> None:
        self._gate.set()
        await asyncio.to_thread(self._threads.close)

    def _write_alone(self, job: PostgresWriteJob) -> None:
        if job.ticket <= WRITERS:
            self._order.enter(job.ticket, job.ticket)
            self._started.release()
            assert self._gate.wait(TIMEOUT)
        else:
            self.alone.append(job)


def of(name: str) -> Work:
    return lambda tx: sessions.get(tx, name)


def refuses(tx: Transaction) -> None:
    raise Invalid("no")


async def test_a_cancelled_caller_does_not_keep_the_writes_behind_it_out_of_the_group() -> None:
    threads = BlockedThreads()
    await threads.start()
    first, gone, second, third = (threads.put(of(f"hf-{number}")) for number in range(4))
    gone.answer.cancel()
    await threads.finish()

    assert threads.connection.groups == [[first, second, third]]
    assert threads.alone == []


async def test_a_write_that_refuses_its_input_does_not_keep_the_writes_behind_it_out_of_the_group() -> None:
    threads = BlockedThreads()
    await threads.start()
    first, refused, second = threads.put(of("hf-1")), threads.put(refuses), threads.put(of("hf-2"))
    await threads.finish()

    assert threads.connection.groups == [[first, second]]
    assert threads.alone == [refused]
