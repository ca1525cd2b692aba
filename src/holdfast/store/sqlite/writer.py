"""The thread that writes to a SQLite store: group commit, and a WAL that is kept small.

Every write waits in one queue. The writer takes all queued writes, runs each in its own savepoint inside one BEGIN
IMMEDIATE, commits once (WAL, synchronous=FULL: one fsync) and only then answers them. If the shared commit fails, each
write runs again alone, so that one message too large for the disk does not fail the others. No write succeeds before its
commit has returned, or if the files that it went to are no longer those in the directory (`file_identity`).
"""

import asyncio
import logging
import queue
import threading
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from typing import Any

import apsw

from holdfast.model.errors import HoldfastError, IoFailed, Unavailable
from holdfast.store.database import Transaction
from holdfast.store.sqlite import connection as sqlite_connection
from holdfast.store.sqlite.connection import LockWait, SqliteTransaction, translate_any
from holdfast.store.sqlite.file_identity import StoreFiles
from holdfast.tasks import PromptFuture

log = logging.getLogger(__name__)

BATCH_LIMIT = 256
"""Writes in one commit: enough to share the cost of the fsync, few enough that no caller waits long."""
CHECKPOINT_PAGES = 2_000
"""About 8 MB of WAL: small enough to stay in the page cache, large enough to be worth the two fsyncs."""
TRUNCATE_PAGES = 12_000
"""About 48 MB: readers have prevented reuse of the WAL, so the checkpoint waits for them. The promised limit is 64 MB."""
TRUNCATE_SECONDS = 2.0


class WriteJob:
    """A queued write: the work, and the future for its result."""

    __slots__ = ("answer", "committed", "error", "result", "topics", "work")

    def __init__(self, work: Callable[[Transaction], object], answer: PromptFuture[Any] | Future[Any]) -> None:
        self.work = work
        self.answer = answer
        self.result: object = None
        self.error: BaseException | None = None
        self.committed = False
        """Whether a commit has returned, and the work did not raise."""
        self.topics: Collection[str] = ()

    def fail(self, error: BaseException) -> None:
        self.error = error
        self.committed = False

    def settle(self) -> None:
        if self.answer.done():  # the caller was cancelled
            return
        if self.committed:
            self.answer.set_result(self.result)
        else:
            self.answer.set_exception(self.error or Unavailable("the store failed before this was written"))


class Writer:
    """Accepts writes from any thread. It calls `answer` on the event loop with the jobs that were committed or failed."""

    def __init__(
        self,
        path: Path,
        loop: asyncio.AbstractEventLoop,
        answer: Callable[[Sequence[WriteJob]], None],
        *,
        has_listener: Callable[[str], bool],
        busy_seconds: float,
    ) -> None:
        self._path = path
        self._has_listener = has_listener
        self._loop = loop
        self._answer = answer
        self._busy_seconds = busy_seconds
        self._jobs: queue.SimpleQueue[WriteJob | None] = queue.SimpleQueue()
        self._wal_pages = 0
        self._checkpoint_at = CHECKPOINT_PAGES
        self._attach(sqlite_connection.connect(path, busy_seconds=busy_seconds))
        self.files = StoreFiles(path)
        self._rescue_tried = self._rescued = False
        self.ended = False
        """Whether the thread has ended: nothing more is written."""
        self._thread = threading.Thread(target=self._serve, name="holdfast-write", daemon=True)
        self._thread.start()

    def put(self, job: WriteJob) -> None:
        self._jobs.put(job)

    def close(self) -> None:
        """Write what is queued, then end the thread."""
        self._jobs.put(None)
        self._thread.join()
        if self.files.changed() is not None and not self._rescued:
            self.files.rescue(self._connection)
        self.files.close(self._connection)

    def _attach(self, connection: apsw.Connection) -> None:
        self._connection = connection
        self._connection.set_wal_hook(self._on_commit)
        self._transaction = SqliteTransaction(connection)

    def _serve(self) -> None:
        try:
            while (batch := self._next_batch()) is not None:
                self._commit_and_answer(batch)
        finally:
            self.ended = True
            self._refuse_the_rest()

    def _commit_and_answer(self, batch: Sequence[WriteJob]) -> None:
        """Commit and answer. An error outside a job's transaction (such as no free file descriptor) fails the batch but never ends the thread."""
        try:
            self._commit(batch)
        except (apsw.Error, OSError) as e:
            log.exception("a commit to %s failed", self._path)
            _fail(batch, IoFailed(f"{self._path}: treat the write as not saved ({e}); try again"))
        finally:  # every caller gets an answer, whatever happens to the writer
            self._answer_threads(batch)
            if self._is_awaited(batch):
                self._loop.call_soon_threadsafe(self._answer, batch)
        try:
            self._keep_wal_small()
        except (apsw.Error, OSError):
            log.exception("the checkpoint of %s failed; it is retried after the next write", self._path)

    def _is_awaited(self, batch: Sequence[WriteJob]) -> bool:
        """Whether the event loop must be woken: not if threads have all the answers and nobody listens to the topics."""
        return any(
            not job.committed or not isinstance(job.answer, Future) or any(map(self._has_listener, job.topics))
            for job in batch
        )

    def _refuse_the_rest(self) -> None:
        """Fail the jobs that are still queued when the writer ends, so that no caller waits forever."""
        left = []
        while not self._jobs.empty():
            if (job := self._jobs.get()) is not None:
                job.fail(Unavailable(f"the store {self._path} has been closed"))
                left.append(job)
        if left:
            self._answer_threads(left)
            self._loop.call_soon_threadsafe(self._answer, left)

    def _answer_threads(self, batch: Sequence[WriteJob]) -> None:
        """Answer callers in other threads directly, because the event loop may be busy."""
        for job in batch:
            if isinstance(job.answer, Future):
                job.settle()

    def _next_batch(self) -> list[WriteJob] | None:
        """All queued jobs, at least one; None when the database is closed and the queue is empty."""
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

    def _commit(self, batch: Sequence[WriteJob]) -> None:
        """Commit the batch. Fail it if the files in the directory are not those of the store, before or after the commit."""
        try:
            self.files.refuse_changed()
        except Unavailable as e:
            self._rescue()
            _fail(batch, e)
            return
        self._rescue_tried = self._rescued = False
        self._commit_batch(batch)
        if (doubt := self.files.doubt_commit()) is not None:
            self._rescue()
            _fail(batch, doubt)

    def await_rescue(self) -> None:
        """Wait until the writer has saved what only the open files hold, before another thread reports that they are gone."""
        if not self._rescue_tried and not self.ended:
            answer: Future[None] = Future()
            self.put(WriteJob(lambda tx: None, answer))
            with suppress(TimeoutError):
                answer.exception(self._busy_seconds)

    def _rescue(self) -> None:
        """Save what only the open files hold, once. Every caller waits for it, so only `close` tries again after a failure."""
        if not self._rescue_tried:
            self._rescue_tried = True
            self._rescued = self.files.rescue(self._connection)

    def _commit_batch(self, batch: Sequence[WriteJob]) -> None:
        if len(batch) == 1:
            self._commit_alone(batch[0])
        elif not self._commit_together(batch):
            for job in batch:
                self._commit_alone(job)

    def _commit_alone(self, job: WriteJob) -> None:
        """Run one job in its own transaction."""
        self._transaction.topics = job.topics = set()
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            job.result = job.work(self._transaction)
            self._connection.execute("COMMIT")
            job.committed = True
        except BaseException as e:  # noqa: BLE001 - passed to the caller, whatever it is
            job.fail(translate_any(e, self._path))
            self._roll_back()

    def _commit_together(self, batch: Sequence[WriteJob]) -> bool:
        """Run all jobs in one transaction; False if they must run one by one instead."""
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            for job in batch:
                self._run_in_savepoint(job)
            self._connection.execute("COMMIT")
            for job in batch:
                job.committed = job.error is None
        except apsw.BusyError as e:  # run one by one, each would wait as long again
            for job in batch:
                job.fail(translate_any(e, self._path))
            self._roll_back()
        except apsw.Error as e:
            log.warning("a commit of %d writes failed (%s); retrying them one by one", len(batch), e)
            self._roll_back()
            return False
        return True

    def _run_in_savepoint(self, job: WriteJob) -> None:
        """Run the work and undo only it if it raises. An error of the database itself fails the batch."""
        self._transaction.topics = job.topics = set()
        self._connection.execute("SAVEPOINT job")
        try:
            job.result = job.work(self._transaction)
        except apsw.Error:
            raise
        except BaseException as e:  # noqa: BLE001 - passed to the caller, whatever it is
            job.error = translate_any(e, self._path)
            self._connection.execute("ROLLBACK TO job")
        self._connection.execute("RELEASE job")

    def _roll_back(self) -> None:
        """End the transaction. If the rollback fails, reconnect: a new connection reads the state on disk."""
        try:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
        except apsw.Error as e:
            if self.files.changed() is not None:  # a new connection would create another WAL beside the open one
                return
            log.warning("a rollback in %s failed (%s); reconnecting", self._path, e)
            self._connection.close(True)
            self._attach(sqlite_connection.connect(self._path, busy_seconds=self._busy_seconds))

    def _on_commit(self, connection: apsw.Connection, database: str, pages: int) -> int:
        if pages < self._wal_pages:  # the WAL was restarted
            self._checkpoint_at = CHECKPOINT_PAGES
        self._wal_pages = pages
        return apsw.SQLITE_OK

    def _keep_wal_small(self) -> None:
        """Checkpoint the WAL when it has grown. Called after the callers have their answers."""
        pages = self._wal_pages
        if pages < self._checkpoint_at or self.files.changed() is not None:
            return
        self._checkpoint_at = pages + CHECKPOINT_PAGES
        try:
            if pages < TRUNCATE_PAGES:
                self._connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
            else:
                self._connection.set_busy_handler(LockWait(TRUNCATE_SECONDS))
                self._connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
        except apsw.BusyError:
            log.info("another process uses the WAL of %s; the checkpoint is retried as the WAL grows", self._path)
        except apsw.Error as e:
            log.warning("the checkpoint of %s failed (%s); it is retried as the WAL grows", self._path, e)
        finally:
            self._connection.set_busy_handler(LockWait(self._busy_seconds))


def _fail(batch: Sequence[WriteJob], error: HoldfastError) -> None:
    for job in batch:
        job.fail(error)
