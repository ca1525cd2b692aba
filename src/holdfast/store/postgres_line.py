"""One thread's line to PostgreSQL: runs works in transactions, and again when the server was away or others in the way.

A work may be run again (`Database.write`), so what was not committed is simply done once more. The one moment at which
nobody can tell is a line that breaks while a commit is under way: it may have taken place, and doing it again would
double it. So each transaction carries a number into the writer's own row of the table `mark`, and after such a break the
row is asked. The question waits for a transaction that is still under way. If no server answers in time, the outcome
stays unknown, and that is said.
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
from holdfast.store.postgres_connection import (
    CLASHES,
    DUPLICATE,
    READ_ONLY,
    connect,
    is_crowded,
    is_gone,
    named,
    shown,
    shut,
    translated,
)
from holdfast.store.postgres_order import GiveWay
from holdfast.store.postgres_pipe import Pipe
from holdfast.store.postgres_transaction import Enter, PostgresTransaction

T = TypeVar("T")
log = logging.getLogger(__name__)

DUPLICATES = 3
"""How often a duplicate is taken for a clash before it is taken for a bug."""
READ_ONLY_SECONDS = 5.0
"""How long a server that takes no writes may be one that is just being replaced."""
FIRST_PAUSE, LONGEST_PAUSE = 0.02, 2.0


class Patience:
    """Whether a work is worth another try, and how long to wait before it."""

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
        """Wait, by chance, so that those who were in each other's way are not again; longer each time."""
        longest = min(LONGEST_PAUSE, FIRST_PAUSE * 2**self._tries)
        time.sleep(random.uniform(0, longest))  # noqa: S311 - chance, not secrecy


class Line:
    """Belongs to one thread, except for `close` and `lend`.

    When the server has no connections left, `borrow` may find one that another line of this process does not use
    just now. Otherwise a work would wait for a connection that is held by those who wait for that work.
    """

    def __init__(self, url: str, busy_seconds: float, borrow: Callable[[], Pipe | None] = lambda: None) -> None:
        self._borrow = borrow
        self._in_use = threading.Lock()
        self._waits: tuple[Pipe, float] | None = None
        """The connection on which a work is under way, and since when."""
        self._url = url
        self._where = shown(url)
        self._busy_seconds = busy_seconds
        self._pipe: Pipe | None = None
        self._number = 0
        self._slot = secrets.token_hex(8)
        """Which row of the marks is this writer's."""

    def write(
        self, work: Callable[[Transaction], T], enter: Enter | None = None, beg: Callable[[], object] = lambda: None
    ) -> tuple[T, set[str]]:
        """Run the work and commit it; what it returned, and the topics it told of. Raises our errors.

        `beg` is called when there is no connection for it.
        """
        return self._persist(lambda: self._write(work, enter), writes=True, beg=beg)

    def lend(self) -> Pipe | None:
        """The connection, for another line to keep, unless it is in use. From any thread."""
        if not self._in_use.acquire(blocking=False):
            return None
        try:
            lent, self._pipe = self._pipe, None
            return None if lent is None or lent.link.closed else lent
        finally:
            self._in_use.release()

    def read(self, work: Callable[[Transaction], T]) -> T:
        return self._persist(lambda: self._read(work), writes=False)

    def waits_for(self, seconds: float) -> bool:
        """Whether a work has been under way for longer than that. From any thread."""
        waits = self._waits
        return waits is not None and time.monotonic() - waits[1] > seconds

    def hang_up_unless_at(self, place: tuple[str, int], known: Container[int]) -> bool:
        """Break the line if it leads elsewhere, or is not among those that are known there. From any thread."""
        waits = self._waits
        if waits is None:
            return False
        pipe = waits[0]
        try:
            if (pipe.link.info.host, pipe.link.info.port) == place and pipe.pid in known:
                return False
        except psycopg.OperationalError:  # its own thread has just closed it
            return False
        shut(pipe.link)
        return True

    def end(self) -> None:
        """Close the line for good; nobody will ask for its mark any more. One that stays is removed after some days."""
        try:
            if self._number and self._pipe is not None and not self._pipe.link.closed:
                self._pipe.rest()
                self._pipe.link.execute(named("driver.unmark"), {"slot": self._slot})
        except psycopg.Error as e:
            log.debug("a mark stays on %s: %s", self._where, e)
        self.close()

    def close(self) -> None:
        if self._pipe is not None:
            self._pipe.link.close()
            self._pipe = None

    def _persist(self, attempt: Callable[[], T], *, writes: bool, beg: Callable[[], object] = lambda: None) -> T:
        patience = Patience(self._busy_seconds)
        while True:
            try:
                with self._in_use:
                    return attempt()
            except GiveWay:
                time.sleep(FIRST_PAUSE)  # the connection can be borrowed meanwhile
                continue
            except psycopg.Error as e:
                if is_crowded(e):
                    beg()
                if is_gone(e) or (writes and e.sqlstate == READ_ONLY):
                    with self._in_use:
                        self.close()
                if (e.sqlstate == READ_ONLY and not writes) or not patience.allows(e):
                    raise translated(e, self._where) from e
                log.info("a transaction on %s is tried again: %s", self._where, e)
            except UnicodeEncodeError as e:
                raise translated(e, self._where) from e
            patience.pause()

    def _connected(self) -> Pipe:
        if self._pipe is None or self._pipe.link.closed:
            try:
                self._pipe = Pipe(connect(self._url, busy_seconds=self._busy_seconds))
            except psycopg.OperationalError as e:
                self._pipe = self._borrow() if is_crowded(e) else None
                if self._pipe is None:
                    raise
        return self._pipe

    def _read(self, work: Callable[[Transaction], T]) -> T:
        pipe = self._connected()
        with self._whole(pipe):
            pipe.begin("driver.begin_read")
            result = work(PostgresTransaction(pipe, writes=False))
            pipe.leave("driver.commit")
        return result

    def _write(self, work: Callable[[Transaction], T], enter: Enter | None) -> tuple[T, set[str]]:
        pipe = self._connected()
        transaction = PostgresTransaction(pipe, writes=True, enter=enter)
        self._number += 1
        committing = False
        try:
            with self._whole(pipe):
                pipe.begin("driver.begin")
                pipe.tell("driver.mark", {"slot": self._slot, "number": self._number, "at": _now()})
                result = work(transaction)
                if not pipe.asked:
                    pipe.catch_up()  # else all of it is one packet, which could arrive after we were told that it never did
                committing = True
                pipe.end("driver.commit")
        except psycopg.Error as e:
            if not (committing and is_gone(e)):
                raise
            if not self._was_committed(e):
                raise
        return result, transaction.topics

    @contextmanager
    def _whole(self, pipe: Pipe) -> Iterator[None]:
        """Leave no transaction open behind an error. A line on which that fails is given up."""
        self._waits = pipe, time.monotonic()
        try:
            yield
        except BaseException:
            try:
                pipe.abandon()
            except psycopg.Error as e:
                log.debug("a rollback on %s failed (%s); connecting anew", self._where, e)
            raise
        finally:
            self._waits = None

    def _was_committed(self, lost: psycopg.Error) -> bool:
        """What became of the last transaction. Raises IoFailed if nobody can be asked in time."""
        patience = Patience(self._busy_seconds)
        while True:
            self.close()
            try:
                asked = {"slot": self._slot, "at": _now()}
                pipe = self._connected()
                pipe.rest()  # one that was borrowed may still have an answer due
                row = pipe.link.execute(named("driver.marked"), asked).fetchone()
            except psycopg.Error as e:
                if not patience.allows(e):
                    raise IoFailed(
                        f"the line to {self._where} broke while a commit was under way ({_first_line(lost)}), and the "
                        "store has not come back: it is not known whether what was being written is saved"
                    ) from e
                patience.pause()
                continue
            assert row is not None
            committed = bool(row[0] == self._number)
            log.info("a commit on %s was cut off; it had %staken place", self._where, "" if committed else "not ")
            return committed


def _now() -> int:
    return time.time_ns() // 1000


def _first_line(error: BaseException) -> str:
    return str(error).strip().partition("\n")[0]
