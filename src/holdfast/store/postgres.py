"""The PostgreSQL driver: a few threads that write and a few that read, each with a line of its own to the server.

A line is the driver's pool: threads take works from a queue, so a second queue for connections would only stand behind
it. PostgreSQL shares one flush among all that commit at the same time, so there is no group commit here. How a work is
kept from being lost or doubled is in `postgres_line`, how two of them are kept apart in `postgres_transaction`.
"""

import asyncio
import logging
import threading
import time
from collections.abc import AsyncGenerator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Concatenate, ParamSpec, TypeVar, cast

import psycopg

from holdfast.model.errors import Unavailable
from holdfast.store import postgres_migrate
from holdfast.store.database import Transaction
from holdfast.store.postgres_bells import Bells
from holdfast.store.postgres_connection import BUSY_SECONDS, Link, connect, named, refuse_unfit, shown, translate
from holdfast.store.postgres_line import Line
from holdfast.store.postgres_order import Order
from holdfast.store.postgres_pipe import Pipe
from holdfast.store.postgres_transaction import Enter
from holdfast.store.postgres_watch import Watch

P = ParamSpec("P")
T = TypeVar("T")
log = logging.getLogger(__name__)

QUEUE_LIMIT = 1024
"""Writes under way at once; more wait their turn outside, which slows their senders down."""
WRITERS = 12
"""Commits that can share a flush. Each is a connection once it is needed: servers take a hundred by default."""
READERS = 4
MARK_DAYS = 7
"""How long the mark of a writer that was killed is kept."""
DAY = 86_400_000_000


class PostgresDatabase:
    """A store in a PostgreSQL database. Open it with `open_postgres`."""

    def __init__(self, url: str, *, busy_seconds: float = BUSY_SECONDS) -> None:
        self.url = url
        self.where = shown(url)
        self._busy_seconds = busy_seconds
        self._loop = asyncio.get_running_loop()
        self._room = asyncio.Semaphore(QUEUE_LIMIT)
        self._closed = False
        self._local = threading.local()
        self._lines: list[Line] = []
        self._order = Order()
        self._bells = Bells(partial(connect, url), self.where)
        self._watch = Watch(partial(connect, url), lambda: tuple(self._lines), self._bells.hang_up)
        self._watch.start()
        self._writers = ThreadPoolExecutor(WRITERS, thread_name_prefix="holdfast-write")
        self._readers = ThreadPoolExecutor(READERS, thread_name_prefix="holdfast-read")

    async def write(self, work: Callable[Concatenate[Transaction, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        async with self._room:
            self._refuse_when_closed()
            ticket = self._order.draw()
            job = partial(self._write_in_order, lambda tx: work(tx, *args, **kwargs), ticket)
            future = self._writers.submit(job)
            future.add_done_callback(lambda _: self._order.leave(ticket))  # also if it was cancelled before it began
            return await asyncio.wrap_future(future)

    def write_from_thread(self, work: Callable[Concatenate[Transaction, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        self._refuse_when_closed()
        return self._write(lambda tx: work(tx, *args, **kwargs))

    async def read(self, work: Callable[Concatenate[Transaction, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        self._refuse_when_closed()
        job = partial(self._read, lambda tx: work(tx, *args, **kwargs))
        return await self._loop.run_in_executor(self._readers, job)

    def read_from_thread(self, work: Callable[Concatenate[Transaction, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """As `read`, for a thread that is not the event loop's."""
        self._refuse_when_closed()
        return self._read(lambda tx: work(tx, *args, **kwargs))

    async def listen(self, topic: str) -> AsyncGenerator[None, None]:
        bell = self._bells.add(topic)
        try:
            while not self._closed:
                yield
                await bell.wait()
                bell.clear()
        finally:
            self._bells.discard(topic, bell)

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        await asyncio.to_thread(self._shut)
        await asyncio.to_thread(self._watch.stop)
        await self._bells.close()

    def _refuse_when_closed(self) -> None:
        if self._closed:
            raise Unavailable(f"the store {self.where} has been closed")

    # The threads.

    def _write_in_order(self, work: Callable[[Transaction], T], ticket: int) -> T:
        return self._write(work, partial(self._order.enter, ticket), partial(self._order.beg, ticket))

    def _write(
        self, work: Callable[[Transaction], T], enter: Enter | None = None, beg: Callable[[], object] = lambda: None
    ) -> T:
        result, topics = self._line().write(work, enter, beg)
        if topics:
            self._bells.tell(topics)
        return result

    def _read(self, work: Callable[[Transaction], T]) -> T:
        return self._line().read(work)

    def _line(self) -> Line:
        """This thread's own."""
        try:
            return cast("Line", self._local.line)
        except AttributeError:
            line = self._local.line = Line(self.url, self._busy_seconds, self._borrow)
            self._lines.append(line)
            return line

    def _borrow(self) -> Pipe | None:
        """A connection that some other line does not use just now."""
        return next((pipe for line in tuple(self._lines) if (pipe := line.lend()) is not None), None)

    def _shut(self) -> None:
        self._writers.shutdown(wait=True)
        self._readers.shutdown(wait=True)
        for line in self._lines:
            line.end()


async def open_postgres(url: str, *, busy_seconds: float = BUSY_SECONDS) -> PostgresDatabase:
    """Open the store, creating its tables or bringing them to this release's schema first."""
    await asyncio.to_thread(_ready, url)
    return PostgresDatabase(url, busy_seconds=busy_seconds)


def _ready(url: str) -> None:
    where = shown(url)
    try:
        with connect(url) as link:
            for warning in refuse_unfit(link, where):
                log.warning("%s", warning)
            postgres_migrate.bring_up(link, where)
            _forget_the_dead(link)
    except psycopg.Error as e:
        raise translate(e, where) from e


def _forget_the_dead(link: Link) -> None:
    """Drop the marks of writers that were killed: none of them will ask any more. Who may not write leaves them."""
    with suppress(psycopg.errors.ReadOnlySqlTransaction, psycopg.errors.InsufficientPrivilege):
        link.execute(named("driver.unmark_old"), {"before": time.time_ns() // 1000 - MARK_DAYS * DAY})
