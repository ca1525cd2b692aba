"""The PostgreSQL connection of one thread: runs work in transactions, and retries after disconnects and conflicts.

Work may run twice (`Database.write`), so work that was not committed is run again. Only a connection that breaks during a
commit leaves the outcome unknown: the commit may have succeeded, and running the work again would apply it twice. So each
transaction writes a number into the writer's row of the table `mark`, and after such a break that row is read. The
query waits for a transaction that is still in progress. If no server answers in time, an error reports that the outcome
is unknown.
"""

import logging
import random
import secrets
import threading
import time
from collections.abc import Callable, Container, Iterator
from contextlib import contextmanager
from typing import TypeVar

import psycopg

from holdfast.model.errors import IoFailed
from holdfast.store.database import Transaction
from holdfast.store.postgres.connection import (
    CLASHES,
    DUPLICATE,
    READ_ONLY,
    break_connection,
    connect,
    is_crowded,
    is_gone,
    named,
    redact_url,
    translate_any,
)
from holdfast.store.postgres.pipeline import Pipeline
from holdfast.store.postgres.transaction import Enter, PostgresTransaction
from holdfast.store.postgres.write_order import WriteConflict

T = TypeVar("T")
log = logging.getLogger(__name__)

DUPLICATES = 3
"""How often a duplicate key is treated as a conflict before it is treated as a bug."""
READ_ONLY_SECONDS = 5.0
"""How long a read-only server is assumed to be in the middle of a failover."""
FIRST_PAUSE, LONGEST_PAUSE = 0.02, 2.0


class RetryBudget:
    """Decides whether work is retried, and waits before each retry."""

    def __init__(self, seconds: float) -> None:
        self._since = time.monotonic()
        self._seconds = seconds
        self._tries = 0

    def allows(self, error: psycopg.Error) -> bool:
        passed = time.monotonic() - self._since
        self._tries += 1
        if error.sqlstate == DUPLICATE:
            return self._tries <= DUPLICATES
        if error.sqlstate == READ_ONLY:
            return passed < min(self._seconds, READ_ONLY_SECONDS)
        return passed < self._seconds and (is_gone(error) or is_crowded(error) or error.sqlstate in CLASHES)

    def pause(self) -> None:
        """Wait for a random time, longer each time, so that transactions in conflict do not meet again."""
        longest = min(LONGEST_PAUSE, FIRST_PAUSE * 2**self._tries)
        time.sleep(random.uniform(0, longest))  # noqa: S311 - not for security


class RetryingConnection:
    """For one thread, except for `close` and `lend`.

    When the server has no connections left, or does not answer, `borrow` may return one that another thread of this
    process does not use at the moment. Otherwise work could wait for a connection whose owner waits for that work.
    """

    def __init__(self, url: str, busy_seconds: float, borrow: Callable[[], Pipeline | None] = lambda: None) -> None:
        self._borrow = borrow
        self._in_use = threading.Lock()
        self._waits: tuple[Pipeline, float] | None = None
        """The connection on which work is in progress, and since when."""
        self._url = url
        self._where = redact_url(url)
        self._busy_seconds = busy_seconds
        self._pipe: Pipeline | None = None
        self._was_refused = False
        """Whether the last attempt to connect failed: then borrowing is tried first."""
        self._number = 0
        self._slot = secrets.token_hex(8)
        """The key of this writer's row in the table `mark`."""

    def write(
        self,
        work: Callable[[Transaction], T],
        enter: Enter | None = None,
        report_no_connection: Callable[[], object] = lambda: None,
    ) -> tuple[T, set[str]]:
        """Run the work and commit it; returns its result and the topics to notify. Raises our errors.

        `report_no_connection` is called when there is no connection.
        """
        return self._retry(lambda: self._write(work, enter), writes=True, report_no_connection=report_no_connection)

    def write_together(self, work: Callable[[Pipeline], object]) -> None:
        """Run the work in one transaction and commit it, without retrying.

        Raises an error of PostgreSQL, or that of the work, if nothing was committed, and IoFailed if that is unknown.
        """
        with self._in_use:
            try:
                self._commit(self._connected(), work)
            except psycopg.Error as e:
                if is_gone(e) or e.sqlstate == READ_ONLY:
                    self.close()
                raise

    @property
    def is_connected(self) -> bool:
        return self._pipe is not None and not self._pipe.link.closed

    def lend(self) -> Pipeline | None:
        """Give the connection to another thread for good, unless it is in use. Thread-safe."""
        if not self._in_use.acquire(blocking=False):
            return None
        try:
            lent, self._pipe = self._pipe, None
            return None if lent is None or lent.link.closed else lent
        finally:
            self._in_use.release()

    def read(self, work: Callable[[Transaction], T]) -> T:
        return self._retry(lambda: self._read(work), writes=False)

    def is_waiting_longer_than(self, seconds: float) -> bool:
        """Whether work has been in progress for longer than that. Thread-safe."""
        waits = self._waits
        return waits is not None and time.monotonic() - waits[1] > seconds

    def break_unless_connected_to(self, place: tuple[str, int], known: Container[int]) -> bool:
        """Break the connection if it is to another server, or if that server does not know it. Thread-safe."""
        waits = self._waits
        if waits is None:
            return False
        pipe = waits[0]
        try:
            if (pipe.link.info.host, pipe.link.info.port) == place and pipe.pid in known:
                return False
        except psycopg.OperationalError:  # its thread has just closed it
            return False
        break_connection(pipe.link)
        return True

    def end(self) -> None:
        """Delete the mark, which nothing reads any more, and close the connection. A mark that stays is deleted days later."""
        try:
            if self._number and self._pipe is not None and not self._pipe.link.closed:
                self._pipe.collect_pending()
                self._pipe.link.execute(named("driver.delete_mark"), {"slot": self._slot})
        except psycopg.Error as e:
            log.debug("could not delete a mark on %s: %s", self._where, e)
        self.close()

    def close(self) -> None:
        if self._pipe is not None:
            self._pipe.link.close()
            self._pipe = None

    def _retry(
        self, attempt: Callable[[], T], *, writes: bool, report_no_connection: Callable[[], object] = lambda: None
    ) -> T:
        budget = RetryBudget(self._busy_seconds)
        while True:
            try:
                with self._in_use:
                    return attempt()
            except WriteConflict:
                time.sleep(FIRST_PAUSE)  # the connection can be borrowed meanwhile
                continue
            except psycopg.Error as e:
                if self._pipe is None:
                    report_no_connection()
                if is_gone(e) or (writes and e.sqlstate == READ_ONLY):
                    with self._in_use:
                        self.close()
                if (e.sqlstate == READ_ONLY and not writes) or not budget.allows(e):
                    raise translate_any(e, self._where) from e
                log.info("retrying a transaction on %s: %s", self._where, e)
            except UnicodeEncodeError as e:
                raise translate_any(e, self._where) from e
            budget.pause()

    def _connected(self) -> Pipeline:
        if self._pipe is None or self._pipe.link.closed:
            self._pipe = self._borrow() if self._was_refused else None
        if self._pipe is None:
            self._was_refused = False
            try:
                self._pipe = Pipeline(connect(self._url, busy_seconds=self._busy_seconds))
            except psycopg.OperationalError as e:
                self._was_refused = True
                self._pipe = self._borrow() if is_crowded(e) or is_gone(e) else None
                if self._pipe is None:
                    raise
        return self._pipe

    def _read(self, work: Callable[[Transaction], T]) -> T:
        pipe = self._connected()
        with self._transaction(pipe):
            pipe.begin("driver.begin_read")
            result = work(PostgresTransaction(pipe, writes=False))
            pipe.end_without_waiting("driver.commit")
        return result

    def _write(self, work: Callable[[Transaction], T], enter: Enter | None) -> tuple[T, set[str]]:
        pipe = self._connected()
        transaction = PostgresTransaction(pipe, writes=True, enter=enter)
        return self._commit(pipe, lambda _: work(transaction)), transaction.topics

    def _commit(self, pipe: Pipeline, work: Callable[[Pipeline], T]) -> T:
        self._number += 1
        committing = False
        try:
            with self._transaction(pipe):
                pipe.begin("driver.begin")
                pipe.send("driver.put_mark", {"slot": self._slot, "number": self._number, "at": _now()})
                result = work(pipe)
                if not pipe.has_waited:
                    pipe.sync()  # otherwise all of it is one packet, which could arrive after we concluded that it did not
                committing = True
                pipe.end("driver.commit")
        except psycopg.Error as e:
            if not (committing and is_gone(e)):
                raise
            if not self._was_committed(e):
                raise
        return result

    @contextmanager
    def _transaction(self, pipe: Pipeline) -> Iterator[None]:
        """Roll back after an error. A connection on which that fails is closed."""
        self._waits = pipe, time.monotonic()
        try:
            yield
        except BaseException:
            try:
                pipe.roll_back()
            except psycopg.Error as e:
                log.debug("a rollback on %s failed (%s); reconnecting", self._where, e)
            raise
        finally:
            self._waits = None

    def _was_committed(self, lost: psycopg.Error) -> bool:
        """Whether the last transaction was committed. Raises IoFailed if no server answers in time."""
        budget = RetryBudget(self._busy_seconds)
        while True:
            self.close()
            try:
                asked = {"slot": self._slot, "at": _now()}
                pipe = self._connected()
                pipe.collect_pending()  # a borrowed one may have a pending result
                row = pipe.link.execute(named("driver.get_mark"), asked).fetchone()
            except psycopg.Error as e:
                if not budget.allows(e):
                    raise IoFailed(
                        f"the connection to {self._where} broke during a commit ({_first_line(lost)}) and could not be "
                        "restored; it is unknown whether the write was saved"
                    ) from e
                budget.pause()
                continue
            assert row is not None
            committed = bool(row[0] == self._number)
            log.info(
                "the connection to %s broke during a commit, which %s",
                self._where,
                "succeeded" if committed else "failed",
            )
            return committed


def _now() -> int:
    return time.time_ns() // 1000


def _first_line(error: BaseException) -> str:
    return str(error).strip().partition("\n")[0]
