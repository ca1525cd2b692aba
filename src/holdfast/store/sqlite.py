"""The SQLite driver: one writer thread with group commit, a few reading threads, a bounded WAL.

Every `write` waits in one queue. The writer takes all that wait, runs each in a savepoint of its own
inside one BEGIN IMMEDIATE, commits once (WAL, synchronous=FULL: one fsync) and only then answers all
of them. If the shared commit fails, each is run again alone, so that a message too large for the
disk does not take its neighbours down. Nothing is ever answered before its commit has returned.
"""

import asyncio
import logging
import queue
import random
import threading
import time
from array import array
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar, cast

import apsw

from holdfast.model.errors import Corrupt, DiskFull, HoldfastError, Invalid, IoFailed, ReadOnly, Unavailable
from holdfast.store import files, migrate, queries
from holdfast.store.database import Row, Transaction, Value

P = ParamSpec("P")
T = TypeVar("T")
log = logging.getLogger(__name__)

BUSY_SECONDS = 60.0
"""How long a writer waits for another process before it gives up and says so."""
QUEUE_LIMIT = 1024
"""Writes under way at once; more wait their turn outside, which slows their senders down."""
BATCH_LIMIT = 256
"""Writes in one commit: enough to hide the fsync, few enough that nobody waits long."""
READERS = 4
CHECKPOINT_PAGES = 2_000
"""About 8 MB of WAL: small enough to stay in the page cache, large enough to be worth the two fsyncs."""
TRUNCATE_PAGES = 12_000
"""About 48 MB: readers have kept the WAL from being reused, so wait for them a little; the promise is 64 MB."""
TRUNCATE_SECONDS = 2.0
POLL_SECONDS = 0.25
"""How soon a listener notices the commit of another process."""

INCREMENTAL = 2
PRAGMAS = """
PRAGMA journal_mode = WAL;
PRAGMA synchronous = FULL;
PRAGMA fullfsync = ON;
PRAGMA checkpoint_fullfsync = ON;
PRAGMA foreign_keys = ON;
PRAGMA trusted_schema = OFF;
PRAGMA cell_size_check = ON;
"""


def translate(error: apsw.Error, path: Path) -> HoldfastError:
    """SQLite's error as ours; the one place where that is decided."""
    match error:
        case apsw.FullError():
            return DiskFull(f"the disk is full: nothing was saved to {path}; make room and try again")
        case apsw.ReadOnlyError() | apsw.PermissionsError() | apsw.CantOpenError() | apsw.AuthError():
            return ReadOnly(f"cannot write to {path}: {error}")
        case apsw.CorruptError() | apsw.NotADBError():
            return Corrupt(
                f"{path} is damaged ({error}). It was left as it is: run 'holdfast doctor', "
                "and 'holdfast restore' with your newest backup"
            )
        case apsw.BusyError() | apsw.LockedError():
            return Unavailable(
                f"{path} has been locked by another process for {BUSY_SECONDS:.0f} s; try again when it is done"
            )
        case apsw.TooBigError():
            return Invalid(f"too large for one row of the store: {error}")
        case _:
            return IoFailed(f"the store {path} failed ({error}): what was being written does not count as saved")


def translated(error: BaseException, path: Path) -> BaseException:
    """Ours for SQLite's, with its cause; a broken constraint is a bug of the work, and any other error stays what it is."""
    match error:
        case UnicodeDecodeError():
            ours: Exception = Corrupt(f"{path} holds a text that is not UTF-8: run 'holdfast sessions verify'")
        case UnicodeEncodeError():
            ours = Invalid(
                "a name with lone surrogates cannot be kept: only message texts may hold bytes that are no text"
            )
        case apsw.ConstraintError() | apsw.SQLError() | apsw.MisuseError():
            ours = AssertionError(f"the work does not fit the schema: {error}")
        case apsw.Error():
            ours = translate(error, path)
        case _:
            return error
    ours.__cause__ = error
    return ours


class SqliteTransaction:
    """Named queries on one connection, inside a transaction that somebody else begins and ends."""

    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection
        self._queries = queries.load()
        self.topics: set[str] = set()

    def one(self, query: str, **params: Value) -> Row | None:
        rows = self._connection.execute(self._queries[query], params).fetchall()
        return cast("Row", rows[0]) if rows else None

    def all(self, query: str, **params: Value) -> list[Row]:
        return cast("list[Row]", self._connection.execute(self._queries[query], params).fetchall())

    def run(self, query: str, **params: Value) -> int:
        self._connection.execute(self._queries[query], params).fetchall()
        return self._connection.changes()

    def many(self, query: str, rows: Iterable[Mapping[str, Value]]) -> None:
        self._connection.executemany(self._queries[query], rows).fetchall()

    def notify(self, topic: str) -> None:
        self.topics.add(topic)


class _Job:
    """One write on its way: the work, and where its answer goes."""

    __slots__ = ("answer", "error", "refusal", "result", "topics", "work")

    def __init__(self, work: Callable[[Transaction], object], answer: "asyncio.Future[Any] | Future[Any]") -> None:
        self.work = work
        self.answer = answer
        self.result: object = None
        self.refusal: BaseException | None = None
        """What the work itself raised."""
        self.error: BaseException | None = Unavailable("the store failed before this was written")
        """What the one who waits is told: a failure, until a commit has returned."""
        self.topics: set[str] = set()

    def settle(self) -> None:
        if self.answer.done():  # cancelled by the one who waited
            return
        if self.error is not None:
            self.answer.set_exception(self.error)
        else:
            self.answer.set_result(self.result)


class SqliteDatabase:
    """A store in one file. Open it with `open_sqlite`, once per process."""

    def __init__(self, path: Path, *, busy_seconds: float = BUSY_SECONDS) -> None:
        self.path = path
        self._busy_seconds = busy_seconds
        self._loop = asyncio.get_running_loop()
        self._room = asyncio.Semaphore(QUEUE_LIMIT)
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._closed = False
        self._listeners: dict[str, set[asyncio.Event]] = {}
        self._poller: asyncio.Task[None] | None = None
        self._local = threading.local()
        self._connections: list[apsw.Connection] = []
        self._wal_pages = 0
        self._checkpoint_at = CHECKPOINT_PAGES
        self._attach(connect(path, busy_seconds=busy_seconds))
        self._readers = ThreadPoolExecutor(READERS, thread_name_prefix="holdfast-read")
        self._writer = threading.Thread(target=self._serve, name="holdfast-write", daemon=True)
        self._writer.start()

    def _attach(self, connection: apsw.Connection) -> None:
        self._connection = connection
        self._connection.set_wal_hook(self._on_commit)
        self._transaction = SqliteTransaction(connection)

    async def write(self, work: Callable[Concatenate[Transaction, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        async with self._room:
            self._refuse_when_closed()
            answer = self._loop.create_future()
            self._jobs.put(_Job(lambda tx: work(tx, *args, **kwargs), answer))
            return cast("T", await answer)

    def write_from_thread(self, work: Callable[Concatenate[Transaction, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        self._refuse_when_closed()
        answer: Future[T] = Future()
        self._jobs.put(_Job(lambda tx: work(tx, *args, **kwargs), answer))
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
        if self._closed:
            raise Unavailable(f"the store {self.path} has been closed")

    # The writer's thread.

    def _serve(self) -> None:
        try:
            while (batch := self._next_batch()) is not None:
                try:
                    self._commit(batch)
                finally:  # whatever becomes of the writer, nobody may wait for ever
                    self._answer_threads(batch)
                    self._loop.call_soon_threadsafe(self._answer, batch)
                self._keep_wal_small()
        finally:
            self._closed = True
            self._refuse_the_rest()

    def _refuse_the_rest(self) -> None:
        """Nobody may wait for ever: whatever is still in the queue when the writer ends is told so."""
        left = []
        while not self._jobs.empty():
            if (job := self._jobs.get()) is not None:
                job.error = Unavailable(f"the store {self.path} has been closed")
                left.append(job)
        if left:
            self._answer_threads(left)
            self._loop.call_soon_threadsafe(self._answer, left)

    def _answer_threads(self, batch: Sequence[_Job]) -> None:
        """Those who wait in threads of their own are answered from here, because the loop may be busy."""
        for job in batch:
            if isinstance(job.answer, Future):
                job.settle()

    def _next_batch(self) -> list[_Job] | None:
        """All that wait, at least one; None when the database is closed and nobody waits."""
        first = self._jobs.get()
        if first is None:
            return None
        batch = [first]
        while len(batch) < BATCH_LIMIT and not self._jobs.empty():
            job = self._jobs.get()
            if job is None:
                self._jobs.put(None)
                break
            batch.append(job)
        return batch

    def _commit(self, batch: Sequence[_Job]) -> None:
        if len(batch) == 1:
            self._commit_alone(batch[0])
        elif not self._commit_together(batch):
            for job in batch:
                self._commit_alone(job)

    def _commit_alone(self, job: _Job) -> None:
        """One transaction for one job; its error is its own."""
        self._transaction.topics = job.topics = set()
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            job.result = job.work(self._transaction)
            self._connection.execute("COMMIT")
            job.error = None
        except BaseException as e:  # noqa: BLE001 - handed to the one who waits, whatever it is
            job.error = translated(e, self.path)
            self._roll_back()

    def _commit_together(self, batch: Sequence[_Job]) -> bool:
        """One transaction for all; False if they must be run one by one instead."""
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            for job in batch:
                self._run_in_savepoint(job)
            self._connection.execute("COMMIT")
            for job in batch:
                job.error = job.refusal
        except apsw.BusyError as e:  # each alone would wait as long again
            for job in batch:
                job.error = translated(e, self.path)
            self._roll_back()
        except apsw.Error as e:
            log.warning("a commit of %d writes failed (%s); trying them one by one", len(batch), e)
            self._roll_back()
            return False
        return True

    def _run_in_savepoint(self, job: _Job) -> None:
        """Run the work; if it raises, undo it alone. An error of the database itself passes on to the batch."""
        self._transaction.topics = job.topics = set()
        self._connection.execute("SAVEPOINT job")
        try:
            job.result = job.work(self._transaction)
        except apsw.Error:
            raise
        except BaseException as e:  # noqa: BLE001 - handed to the one who waits, whatever it is
            job.refusal = translated(e, self.path)
            self._connection.execute("ROLLBACK TO job")
        self._connection.execute("RELEASE job")

    def _roll_back(self) -> None:
        """Leave no transaction open. If even that fails, a new connection starts from what is on the disk."""
        try:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
        except apsw.Error as e:
            log.warning("a rollback in %s failed (%s); opening the store anew", self.path, e)
            self._connection.close(True)
            self._attach(connect(self.path, busy_seconds=self._busy_seconds))

    def _on_commit(self, connection: apsw.Connection, database: str, pages: int) -> int:
        if pages < self._wal_pages:  # the WAL has been started anew
            self._checkpoint_at = CHECKPOINT_PAGES
        self._wal_pages = pages
        return apsw.SQLITE_OK

    def _keep_wal_small(self) -> None:
        """Move the WAL into the file now and then, after those who waited were answered."""
        pages = self._wal_pages
        if pages < self._checkpoint_at:
            return
        self._checkpoint_at = pages + CHECKPOINT_PAGES
        try:
            if pages < TRUNCATE_PAGES:
                self._connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
            else:
                self._connection.set_busy_handler(_Patience(TRUNCATE_SECONDS))
                self._connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
        except apsw.BusyError:
            log.info("another process uses the WAL of %s; it is moved as it grows", self.path)
        except apsw.Error as e:
            log.warning("the checkpoint of %s failed (%s); it is tried again as the WAL grows", self.path, e)
        finally:
            self._connection.set_busy_handler(_Patience(self._busy_seconds))

    # The event loop's side.

    def _answer(self, batch: Sequence[_Job]) -> None:
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
        connection = connect(self.path, busy_seconds=self._busy_seconds)
        self._connections.append(connection)
        return connection

    def _shut(self) -> None:
        self._jobs.put(None)
        self._writer.join()
        self._readers.shutdown(wait=True)
        for connection in self._connections:
            connection.close()
        self._connection.close()


class _Patience:
    """Waits for another process's lock a few milliseconds at a time; by chance, so that nobody starves."""

    def __init__(self, limit: float) -> None:
        self._limit = limit
        self._since = 0.0

    def __call__(self, tries: int) -> bool:
        now = time.monotonic()
        if tries == 0:
            self._since = now
        elif now - self._since > self._limit:
            return False
        time.sleep(random.uniform(0.0005, min(0.02, 0.001 * (tries + 1))))  # noqa: S311 - chance, not secrecy
        return True


def connect(path: Path, *, busy_seconds: float = BUSY_SECONDS) -> apsw.Connection:
    """A connection with the settings every promise rests on. The file must exist."""
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)
    connection.set_busy_handler(_Patience(busy_seconds))
    if connection.pragma("auto_vacuum") != INCREMENTAL:  # setting it is a write, even to what it is already
        connection.pragma("auto_vacuum", INCREMENTAL)
    connection.execute(PRAGMAS).fetchall()
    mode, level = connection.pragma("journal_mode"), connection.pragma("synchronous")
    if (mode, level) != ("wal", 2):
        raise Invalid(f"{path} cannot be kept safe: journal_mode is {mode}, synchronous is {level}")
    # The WAL is kept when the last connection closes: a commit into a file that need not grow takes half the time.
    persist = array("i", [1])
    connection.file_control("main", apsw.SQLITE_FCNTL_PERSIST_WAL, persist.buffer_info()[0])
    return connection


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
        connection = connect(path)
        try:
            migrate.migrate(connection, path)
        finally:
            connection.close()
    except apsw.Error as e:
        raise translate(e, path) from e
