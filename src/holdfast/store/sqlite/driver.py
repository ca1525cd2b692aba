"""The SQLite driver: one writing thread (`writer`), a few reading threads, and notifications.

All connections are opened with the store and stay open. A connection that is opened later, just when the WAL has been
removed, would create a second WAL; then nobody could move the content of the first one into the database.
"""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Concatenate, ParamSpec, TypeVar

import apsw

from holdfast.clock import SystemClock
from holdfast.model.errors import Unavailable
from holdfast.store import atomic_file
from holdfast.store.database import Transaction, Unsubscribe
from holdfast.store.health.damage import Damage
from holdfast.store.notifications import TopicListeners
from holdfast.store.sqlite import connection as sqlite_connection
from holdfast.store.sqlite import location, migrate
from holdfast.store.sqlite.connection import BUSY_SECONDS, SqliteTransaction, translate, translate_any
from holdfast.store.sqlite.writer import WriteJob, Writer
from holdfast.supervisor import BackgroundTask, Completed, Supervisor
from holdfast.tasks import PromptFuture, run_to_completion, stop

P = ParamSpec("P")
T = TypeVar("T")

QUEUE_LIMIT = 1024
"""Writes in progress at once. Further callers wait, which slows them down."""
READERS = 4
BROKEN = (apsw.CorruptError, apsw.NotADBError)
POLL_SECONDS = 0.25
"""How soon a listener notices the commit of another process."""


class SqliteDatabase:
    """A store in one file. Open it with `open_sqlite`, once per process."""

    def __init__(self, path: Path, *, busy_seconds: float = BUSY_SECONDS, supervisor: Supervisor | None = None) -> None:
        self.path = path
        self._supervisor = supervisor or Supervisor(SystemClock())
        self._poller: asyncio.Task[None] | None = None
        self._damage = Damage(self._check, self._supervisor)
        self._busy_seconds = busy_seconds
        self._loop = asyncio.get_running_loop()
        self._room = asyncio.Semaphore(QUEUE_LIMIT)
        self._closed = False
        self._listeners = TopicListeners()
        self._connections: list[apsw.Connection] = []
        self._writer = Writer(
            path, self._loop, self._answer, has_listener=self._listeners.__contains__, busy_seconds=busy_seconds
        )
        self._readers = ThreadPoolExecutor(READERS, thread_name_prefix="holdfast-read")
        try:
            self._poll_connection = self._connect()
            self._idle_readers = [SqliteTransaction(self._connect()) for _ in range(READERS)]
        except BaseException:
            self._shut()
            raise

    async def write(self, work: Callable[Concatenate[Transaction, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        async with self._room:
            self._refuse_when_closed()
            answer: PromptFuture[T] = PromptFuture(self._loop)
            self._writer.put(WriteJob(lambda tx: work(tx, *args, **kwargs), answer))
            return await answer

    def write_from_thread(self, work: Callable[Concatenate[Transaction, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        answer = self.submit_write(work, *args, **kwargs)
        try:
            return answer.result(self._busy_seconds * 2)
        except TimeoutError as e:
            raise Unavailable(f"the store {self.path} has not answered for {self._busy_seconds * 2:.0f} s") from e

    def submit_write(
        self, work: Callable[Concatenate[Transaction, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> Future[T]:
        self._refuse_when_closed()
        answer: Future[T] = Future()
        self._writer.put(WriteJob(lambda tx: work(tx, *args, **kwargs), answer))
        return answer

    def submit_read(
        self, work: Callable[Concatenate[Transaction, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> Future[T]:
        self._refuse_when_closed()
        return self._readers.submit(self._read, lambda tx: work(tx, *args, **kwargs))

    async def read(self, work: Callable[Concatenate[Transaction, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        self._refuse_when_closed()
        return await self._loop.run_in_executor(
            self._readers, partial(self._read, lambda tx: work(tx, *args, **kwargs))
        )

    def subscribe(self, topic: str, callback: Callable[[], object]) -> Unsubscribe:
        self._start_poller()
        return self._listeners.subscribe(topic, callback)

    def listen(self, topic: str) -> AsyncGenerator[None, None]:
        self._start_poller()
        return self._listeners.listen(topic)

    def _start_poller(self) -> None:
        if self._poller is None:
            self._poller = self._supervisor.start("store poller", BackgroundTask(self._poll, POLL_SECONDS))

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        if self._poller is not None:
            await stop(self._poller)
        await self._damage.close()
        self._listeners.close()
        await asyncio.to_thread(self._shut)

    def damage(self) -> str | None:
        return self._damage.found

    def _refuse_when_closed(self) -> None:
        if self._closed or self._writer.ended:
            raise Unavailable(f"the store {self.path} has been closed")

    # On the event loop.

    def _answer(self, batch: Sequence[WriteJob]) -> None:
        topics: set[str] = set()
        for job in batch:
            if job.committed:
                topics.update(job.topics)
            elif job.error is not None and isinstance(job.error.__cause__, BROKEN):
                self._damage.note(str(job.error))
        self._listeners.notify(topics)
        self._settle(deque(batch))

    def _settle(self, waiting: deque[WriteJob]) -> None:
        """Resume the callers. If one of them ends the program, the event loop resumes the others while it shuts down."""
        try:
            while waiting:
                waiting.popleft().settle()
        finally:
            if waiting:
                self._loop.call_soon(self._settle, waiting)

    async def _poll(self, completed: Completed) -> None:
        """Notify every listener when another process has committed: SQLite reports that, but not what changed.

        The poller has a connection that nothing else uses, because the version of a connection changes only when it
        reads. The first round also notifies the listeners, for commits before it; so does a failure, which may hide commits.
        """
        seen = None
        try:
            while True:
                # Uncancellable: while a thread uses the connection, nobody else may close it.
                now = await run_to_completion(
                    self._loop.run_in_executor(self._readers, self._poll_connection.pragma, "data_version")
                )
                if now != seen:
                    seen = now
                    self._listeners.notify_all()
                completed()
                await asyncio.sleep(POLL_SECONDS)
        finally:
            self._listeners.notify_all()

    async def _check(self) -> str | None:
        return await self._loop.run_in_executor(self._readers, self._check_file)

    # On the reading threads.

    def _check_file(self) -> str | None:
        """The first problem that SQLite finds in the whole file, or None."""
        try:
            with closing(sqlite_connection.connect(self.path, busy_seconds=self._busy_seconds)) as connection:
                found = [str(row[0]) for row in SqliteTransaction(connection).all("verify.check_quickly")]
        except apsw.Error as e:
            return str(translate(e, self.path))
        return None if found == ["ok"] else f"{self.path} is damaged: {found[0]}"

    def _read(self, work: Callable[[Transaction], T]) -> T:
        self._refuse_changed_files()
        transaction = self._idle_readers.pop()  # as many connections as threads
        try:
            transaction.connection.execute("BEGIN")
            try:
                return work(transaction)
            finally:
                transaction.connection.execute("ROLLBACK")
        except (apsw.Error, UnicodeError) as e:
            ours = translate_any(e, self.path)
            if isinstance(e, BROKEN):
                self._loop.call_soon_threadsafe(self._damage.note, str(ours))
            raise ours from e
        finally:
            self._idle_readers.append(transaction)

    def _refuse_changed_files(self) -> None:
        try:
            self._writer.files.refuse_changed()
        except Unavailable:
            self._writer.await_rescue()
            raise

    def _connect(self) -> apsw.Connection:
        """Another connection to the files that the writer has open. Connecting to replaced files could mix two WALs."""
        self._writer.files.refuse_changed(recently=False)
        connection = sqlite_connection.connect(self.path, busy_seconds=self._busy_seconds)
        self._connections.append(connection)
        connection.execute("PRAGMA query_only = ON")
        self._writer.files.refuse_changed(recently=False)
        return connection

    def _shut(self) -> None:
        self._writer.close()
        self._readers.shutdown(wait=True)
        for connection in self._connections:
            self._writer.files.close(connection)


async def open_sqlite(
    path: Path, *, busy_seconds: float = BUSY_SECONDS, supervisor: Supervisor | None = None
) -> SqliteDatabase:
    """Open the store. Create it first, or migrate it to the schema of this release."""
    await asyncio.to_thread(_ready, path)
    try:
        return SqliteDatabase(path, busy_seconds=busy_seconds, supervisor=supervisor)
    except apsw.Error as e:
        raise translate(e, path) from e


def _ready(path: Path) -> None:
    location.refuse_missing(path)
    location.prepare(path)
    try:
        migrate.refuse_foreign(path)
        location.tighten(path)
        connection = sqlite_connection.connect(path)
        try:
            migrate.migrate(connection, path)
        finally:
            connection.close()
    except apsw.Error as e:
        raise translate(e, path) from e
    except OSError as e:
        raise atomic_file.translate(e, path) from e
