"""The PostgreSQL driver: a few writing and a few reading threads, each with its own connection.

There is no connection pool: the threads take work from a queue, so a second queue for connections would add nothing.
`write_threads` runs the writes, several in one transaction where possible; `retrying_connection` ensures that no work is
lost or applied twice, `transaction` that two transactions do not interfere.
"""

import asyncio
import logging
import threading
import time
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from typing import Concatenate, ParamSpec, TypeVar, cast

import psycopg

from holdfast.clock import SystemClock
from holdfast.model.errors import Corrupt, Unavailable
from holdfast.store.database import Transaction, Unsubscribe
from holdfast.store.health.damage import Damage
from holdfast.store.postgres import migrate
from holdfast.store.postgres.connection import BUSY_SECONDS, Link, check_server, connect, named, redact_url, translate
from holdfast.store.postgres.failover import LOOK_SECONDS, ConnectionWatch
from holdfast.store.postgres.integrity_check import PostgresCheck, is_damage
from holdfast.store.postgres.notify import Notifier
from holdfast.store.postgres.pipeline import Pipeline
from holdfast.store.postgres.retrying_connection import RetryingConnection
from holdfast.store.postgres.transaction import Enter
from holdfast.store.postgres.write_job import PostgresWriteJob
from holdfast.store.postgres.write_order import WriteOrder
from holdfast.store.postgres.write_threads import WriteThreads
from holdfast.supervisor import Supervisor
from holdfast.tasks import PromptFuture

P = ParamSpec("P")
T = TypeVar("T")
log = logging.getLogger(__name__)

QUEUE_LIMIT = 1024
"""Writes in progress at once. Further callers wait, which slows them down."""
READERS = 4
MARK_DAYS = 7
"""How long the mark of a killed writer is kept."""
DAY = 86_400_000_000


class PostgresDatabase:
    """A store in a PostgreSQL database. Open it with `open_postgres`."""

    def __init__(self, url: str, *, busy_seconds: float = BUSY_SECONDS, supervisor: Supervisor | None = None) -> None:
        self.url = url
        self._supervisor = supervisor or Supervisor(SystemClock())
        self.where = redact_url(url)
        self._busy_seconds = busy_seconds
        self._loop = asyncio.get_running_loop()
        self._room = asyncio.Semaphore(QUEUE_LIMIT)
        self._closed = False
        self._local = threading.local()
        self._connections: list[RetryingConnection] = []
        self._check = PostgresCheck(partial(connect, url), self.where)
        self._damage = Damage(lambda: asyncio.to_thread(self._check.run), self._supervisor)
        self._order = WriteOrder()
        self._notifier = Notifier(partial(connect, url), self.where, self._supervisor)
        self._report = self._supervisor.watch("store watch", every=LOOK_SECONDS)
        self._watch = ConnectionWatch(
            partial(connect, url), lambda: tuple(self._connections), self._notifier.disconnect, self._report
        )
        self._watch.start()
        self._writers = WriteThreads(self._order, self._connection, self._write_in_order, self._notify)
        self._readers = ThreadPoolExecutor(READERS, thread_name_prefix="holdfast-read")

    async def write(self, work: Callable[Concatenate[Transaction, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        async with self._room:
            self._refuse_when_closed()
            answer: PromptFuture[T] = PromptFuture(self._loop)
            ticket = self._order.issue_ticket()
            self._writers.put(PostgresWriteJob(work, lambda tx: work(tx, *args, **kwargs), ticket, answer))
            return await answer

    def write_from_thread(self, work: Callable[Concatenate[Transaction, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        self._refuse_when_closed()
        result, topics = self._write(lambda tx: work(tx, *args, **kwargs))
        self._notifier.notify(topics)
        return result

    def submit_write(
        self, work: Callable[Concatenate[Transaction, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> Future[T]:
        self._refuse_when_closed()
        answer: Future[T] = Future()

        def put() -> None:
            # On the event loop, where no other write comes between a ticket and its place in the queue.
            ticket = self._order.issue_ticket()
            self._writers.put(PostgresWriteJob(work, lambda tx: work(tx, *args, **kwargs), ticket, answer))

        self._loop.call_soon_threadsafe(put)
        return answer

    def submit_read(
        self, work: Callable[Concatenate[Transaction, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> Future[T]:
        self._refuse_when_closed()
        return self._readers.submit(self._read, lambda tx: work(tx, *args, **kwargs))

    async def read(self, work: Callable[Concatenate[Transaction, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        self._refuse_when_closed()
        job = partial(self._read, lambda tx: work(tx, *args, **kwargs))
        return await self._loop.run_in_executor(self._readers, job)

    def read_from_thread(self, work: Callable[Concatenate[Transaction, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Like `read`, for other threads than that of the event loop."""
        self._refuse_when_closed()
        return self._read(lambda tx: work(tx, *args, **kwargs))

    def subscribe(self, topic: str, callback: Callable[[], object]) -> Unsubscribe:
        return self._notifier.listeners.subscribe(topic, callback)

    def listen(self, topic: str) -> AsyncGenerator[None, None]:
        return self._notifier.listeners.listen(topic)

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._check.stop()
        await self._damage.close()
        await asyncio.to_thread(self._shut)
        await asyncio.to_thread(self._watch.stop)
        self._supervisor.forget(self._report)
        await self._notifier.close()

    def damage(self) -> str | None:
        return self._damage.found

    def _refuse_when_closed(self) -> None:
        if self._closed:
            raise Unavailable(f"the store {self.where} has been closed")

    # On the threads.

    def _write_in_order(self, job: PostgresWriteJob) -> None:
        enter = partial(self._order.enter, job.ticket)
        report_no_connection = partial(self._order.report_no_connection, job.ticket)
        job.result, job.topics = self._write(job.work, enter, report_no_connection)

    def _write(
        self,
        work: Callable[[Transaction], T],
        enter: Enter | None = None,
        report_no_connection: Callable[[], object] = lambda: None,
    ) -> tuple[T, set[str]]:
        with self._noting_damage():
            return self._connection().write(work, enter, report_no_connection)

    def _notify(self, jobs: Sequence[PostgresWriteJob]) -> None:
        if topics := {topic for job in jobs if job.error is None for topic in job.topics}:
            self._notifier.notify(topics)

    def _read(self, work: Callable[[Transaction], T]) -> T:
        with self._noting_damage():
            return self._connection().read(work)

    @contextmanager
    def _noting_damage(self) -> Iterator[None]:
        try:
            yield
        except Corrupt as e:
            if is_damage(e.__cause__):
                self._loop.call_soon_threadsafe(self._damage.note, str(e))
            raise

    def _connection(self) -> RetryingConnection:
        """The connection of this thread."""
        try:
            return cast("RetryingConnection", self._local.connection)
        except AttributeError:
            line = self._local.connection = RetryingConnection(self.url, self._busy_seconds, self._borrow)
            self._connections.append(line)
            return line

    def _borrow(self) -> Pipeline | None:
        """A connection that another thread does not use at the moment."""
        return next((pipe for line in tuple(self._connections) if (pipe := line.lend()) is not None), None)

    def _shut(self) -> None:
        self._writers.close()
        self._readers.shutdown(wait=True)
        for line in self._connections:
            line.end()


async def open_postgres(
    url: str, *, busy_seconds: float = BUSY_SECONDS, supervisor: Supervisor | None = None
) -> PostgresDatabase:
    """Open the store. Create its tables first, or migrate them to the schema of this release."""
    await asyncio.to_thread(_ready, url)
    return PostgresDatabase(url, busy_seconds=busy_seconds, supervisor=supervisor)


def _ready(url: str) -> None:
    where = redact_url(url)
    try:
        with connect(url) as link:
            for warning in check_server(link, where):
                log.warning("%s", warning)
            migrate.migrate_store(link, where)
            _delete_old_marks(link)
    except psycopg.Error as e:
        raise translate(e, where) from e


def _delete_old_marks(link: Link) -> None:
    """Delete the marks of killed writers, which nothing reads any more. Without write permission they stay."""
    with suppress(psycopg.errors.ReadOnlySqlTransaction, psycopg.errors.InsufficientPrivilege):
        link.execute(named("driver.delete_old_marks"), {"before": time.time_ns() // 1000 - MARK_DAYS * DAY})
