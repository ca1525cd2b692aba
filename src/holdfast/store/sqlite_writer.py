"""The one thread that writes to a SQLite store: group commit, and a WAL that is kept small.

Every write waits in one queue. The writer takes all that wait, runs each in a savepoint of its own
inside one BEGIN IMMEDIATE, commits once (WAL, synchronous=FULL: one fsync) and only then answers all
of them. If the shared commit fails, each is run again alone, so that a message too large for the
disk does not take its neighbours down. Nothing is ever answered before its commit has returned.
"""

import asyncio
import logging
import queue
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import apsw

from holdfast.model.errors import Unavailable
from holdfast.store import sqlite_connection
from holdfast.store.database import Transaction
from holdfast.store.sqlite_connection import Patience, SqliteTransaction, translated

log = logging.getLogger(__name__)

BATCH_LIMIT = 256
"""Writes in one commit: enough to hide the fsync, few enough that nobody waits long."""
CHECKPOINT_PAGES = 2_000
"""About 8 MB of WAL: small enough to stay in the page cache, large enough to be worth the two fsyncs."""
TRUNCATE_PAGES = 12_000
"""About 48 MB: readers have kept the WAL from being reused, so wait for them a little; the promise is 64 MB."""
TRUNCATE_SECONDS = 2.0


class Job:
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


class Writer:
    """Takes writes from any thread. `answer` is called on the event loop with those that were settled, or failed."""

    def __init__(
        self,
        path: Path,
        loop: asyncio.AbstractEventLoop,
        answer: Callable[[Sequence[Job]], None],
        *,
        busy_seconds: float,
    ) -> None:
        self._path = path
        self._loop = loop
        self._answer = answer
        self._busy_seconds = busy_seconds
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._wal_pages = 0
        self._checkpoint_at = CHECKPOINT_PAGES
        self._attach(sqlite_connection.connect(path, busy_seconds=busy_seconds))
        self.ended = False
        """Whether nothing will be written any more."""
        self._thread = threading.Thread(target=self._serve, name="holdfast-write", daemon=True)
        self._thread.start()

    def put(self, job: Job) -> None:
        self._jobs.put(job)

    def close(self) -> None:
        """Write what still waits, and end."""
        self._jobs.put(None)
        self._thread.join()
        self._connection.close()

    def _attach(self, connection: apsw.Connection) -> None:
        self._connection = connection
        self._connection.set_wal_hook(self._on_commit)
        self._transaction = SqliteTransaction(connection)

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
            self.ended = True
            self._refuse_the_rest()

    def _refuse_the_rest(self) -> None:
        """Nobody may wait for ever: whatever is still in the queue when the writer ends is told so."""
        left = []
        while not self._jobs.empty():
            if (job := self._jobs.get()) is not None:
                job.error = Unavailable(f"the store {self._path} has been closed")
                left.append(job)
        if left:
            self._answer_threads(left)
            self._loop.call_soon_threadsafe(self._answer, left)

    def _answer_threads(self, batch: Sequence[Job]) -> None:
        """Those who wait in threads of their own are answered from here, because the loop may be busy."""
        for job in batch:
            if isinstance(job.answer, Future):
                job.settle()

    def _next_batch(self) -> list[Job] | None:
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

    def _commit(self, batch: Sequence[Job]) -> None:
        if len(batch) == 1:
            self._commit_alone(batch[0])
        elif not self._commit_together(batch):
            for job in batch:
                self._commit_alone(job)

    def _commit_alone(self, job: Job) -> None:
        """One transaction for one job; its error is its own."""
        self._transaction.topics = job.topics = set()
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            job.result = job.work(self._transaction)
            self._connection.execute("COMMIT")
            job.error = None
        except BaseException as e:  # noqa: BLE001 - handed to the one who waits, whatever it is
            job.error = translated(e, self._path)
            self._roll_back()

    def _commit_together(self, batch: Sequence[Job]) -> bool:
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
                job.error = translated(e, self._path)
            self._roll_back()
        except apsw.Error as e:
            log.warning("a commit of %d writes failed (%s); trying them one by one", len(batch), e)
            self._roll_back()
            return False
        return True

    def _run_in_savepoint(self, job: Job) -> None:
        """Run the work; if it raises, undo it alone. An error of the database itself passes on to the batch."""
        self._transaction.topics = job.topics = set()
        self._connection.execute("SAVEPOINT job")
        try:
            job.result = job.work(self._transaction)
        except apsw.Error:
            raise
        except BaseException as e:  # noqa: BLE001 - handed to the one who waits, whatever it is
            job.refusal = translated(e, self._path)
            self._connection.execute("ROLLBACK TO job")
        self._connection.execute("RELEASE job")

    def _roll_back(self) -> None:
        """Leave no transaction open. If even that fails, a new connection starts from what is on the disk."""
        try:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
        except apsw.Error as e:
            log.warning("a rollback in %s failed (%s); opening the store anew", self._path, e)
            self._connection.close(True)
            self._attach(sqlite_connection.connect(self._path, busy_seconds=self._busy_seconds))

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
                self._connection.set_busy_handler(Patience(TRUNCATE_SECONDS))
                self._connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
        except apsw.BusyError:
            log.info("another process uses the WAL of %s; it is moved as it grows", self._path)
        except apsw.Error as e:
            log.warning("the checkpoint of %s failed (%s); it is tried again as the WAL grows", self._path, e)
        finally:
            self._connection.set_busy_handler(Patience(self._busy_seconds))
