"""The SQLite driver: one thread that writes (`sqlite_writer`), a few that read, and news for those who listen."""

import asyncio
import logging
import threading
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Concatenate, ParamSpec, TypeVar, cast

import apsw

from holdfast.model.errors import Unavailable
from holdfast.store import files, migrate, private, sqlite_connection
from holdfast.store.database import Transaction
from holdfast.store.sqlite_connection import BUSY_SECONDS, SqliteTransaction, translate, translated
from holdfast.store.sqlite_writer import Job, Writer

P = ParamSpec("P")
T = TypeVar("T")
log = logging.getLogger(__name__)

QUEUE_LIMIT = 1024
"""Writes under way at once; more wait their turn outside, which slows their senders down."""
READERS = 4
POLL_SECONDS = 0.25
"""How soon a listener notices the commit of another process."""


class SqliteDatabase:
    """A store in one file. Open it with `open_sqlite`, once per process."""

    def __init__(self, path: Path, *, busy_seconds: float = BUSY_SECONDS) -> None:
        self.path = path
        self._busy_seconds = busy_seconds
        self._loop = asyncio.get_running_loop()
        self._room = asyncio.Semaphore(QUEUE_LIMIT)
        self._closed = False
        self._listeners: dict[str, set[asyncio.Event]] = {}
        self._poller: asyncio.Task[None] | None = None
        self._local = threading.local()
        self._connections: list[apsw.Connection] = []
        self._writer = Writer(path, self._loop, self._answer, busy_seconds=busy_seconds)
        self._readers = ThreadPoolExecutor(READERS, thread_name_prefix="holdfast-read")

    async def write(self, work: Callable[Concatenate[Transaction, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        async with self._room:
            self._refuse_when_closed()
            answer = self._loop.create_future()
            self._writer.put(Job(lambda tx: work(tx, *args, **kwargs), answer))
            return cast("T", await answer)

    def write_from_thread(self, work: Callable[Concatenate[Transaction, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        self._refuse_when_closed()
        answer: Future[T] = Future()
        self._writer.put(Job(lambda tx: work(tx, *args, **kwargs), answer))
        try:
            return answer.result(self._busy_seconds * 2)
        except TimeoutError as e:
            raise Unavailable(f"the store {self.path} has not answered for {self._busy_seconds * 2:.0f} s") from e

    async def read(self, work: Callable[Concatenate[Transaction, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        self._refuse_when_closed()
        return await self._loop.run_in_executor(
            self._readers, partial(self._read, lambda tx: work(tx, *args, **kwargs))
        )

    async def listen(self, topic: str) -> AsyncGenerator[None, None]:
        bell = asyncio.Event()
        self._listeners.setdefault(topic, set()).add(bell)
        if self._poller is None:
            self._poller = asyncio.create_task(self._poll(), name="holdfast-poll")
        try:
            while not self._closed:
                yield
                await bell.wait()
                bell.clear()
        finally:
            self._listeners[topic].discard(bell)
            if not self._listeners[topic]:
                del self._listeners[topic]

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        if self._poller is not None:
            self._poller.cancel()
            await asyncio.wait([self._poller])
        self._ring(self._listeners)
        await asyncio.to_thread(self._shut)

    def _refuse_when_closed(self) -> None:
        if self._closed or self._writer.ended:
            raise Unavailable(f"the store {self.path} has been closed")

    # The event loop's side.

    def _answer(self, batch: Sequence[Job]) -> None:
        topics: set[str] = set()
        for job in batch:
            job.settle()
            if job.error is None:
                topics |= job.topics
        self._ring(topics)

    def _ring(self, topics: Iterable[str]) -> None:
        for topic in topics:
            for bell in self._listeners.get(topic, ()):
                bell.set()

    async def _poll(self) -> None:
        """Ring every bell when another process has committed: SQLite tells that, but not what.

        The connection is the poller's own: its version does not move unless it reads. The first round
        rings too, for what was committed before it.
        """
        connection = await self._loop.run_in_executor(self._readers, self._connect)
        seen = None
        while True:
            try:
                now = await self._loop.run_in_executor(self._readers, connection.pragma, "data_version")
            except apsw.Error as e:
                log.warning("cannot see whether %s has news (%s); looking again", self.path, e)
                now = None
            if now != seen or now is None:
                seen = now
                self._ring(self._listeners)
            await asyncio.sleep(POLL_SECONDS)

    # The readers' threads.

    def _read(self, work: Callable[[Transaction], T]) -> T:
        try:
            connection, transaction = self._reader()
            connection.execute("BEGIN")
            try:
                return work(transaction)
            finally:
                connection.execute("ROLLBACK")
        except (apsw.Error, UnicodeDecodeError) as e:
            raise translated(e, self.path) from e

    def _reader(self) -> tuple[apsw.Connection, SqliteTransaction]:
        """This thread's own connection."""
        try:
            return cast("tuple[apsw.Connection, SqliteTransaction]", self._local.pair)
        except AttributeError:
            connection = self._connect()
            connection.execute("PRAGMA query_only = ON")
            pair = connection, SqliteTransaction(connection)
            self._local.pair = pair
            return pair

    def _connect(self) -> apsw.Connection:
        connection = sqlite_connection.connect(self.path, busy_seconds=self._busy_seconds)
        self._connections.append(connection)
        return connection

    def _shut(self) -> None:
        self._writer.close()
        self._readers.shutdown(wait=True)
        for connection in self._connections:
            connection.close()


async def open_sqlite(path: Path, *, busy_seconds: float = BUSY_SECONDS) -> SqliteDatabase:
    """Open the store, creating it or bringing it to this release's schema first."""
    await asyncio.to_thread(_ready, path)
    try:
        return SqliteDatabase(path, busy_seconds=busy_seconds)
    except apsw.Error as e:
        raise translate(e, path) from e


def _ready(path: Path) -> None:
    files.prepare(path)
    try:
        migrate.refuse_foreign(path)
        files.tighten(path)
        connection = sqlite_connection.connect(path)
        try:
            migrate.migrate(connection, path)
        finally:
            connection.close()
    except apsw.Error as e:
        raise translate(e, path) from e
    except OSError as e:
        raise private.translate(e, path) from e
