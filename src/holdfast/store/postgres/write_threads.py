"""The writing threads of a PostgreSQL store, each with its own connection.

A thread takes all writes that wait and commits those that can share a transaction together (`group_commit`). The others run
alone, each in its own transaction, on as many threads as there are. One burst of writes wakes one thread; that one
wakes the next if there is more to do.
"""

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from heapq import heappop, heappush
from types import CodeType

from holdfast.model.errors import HoldfastError
from holdfast.store.postgres.group_commit import FirstStatement, find_first_statement, run_group
from holdfast.store.postgres.retrying_connection import RetryingConnection
from holdfast.store.postgres.write_job import PostgresWriteJob
from holdfast.store.postgres.write_order import WriteConflict, WriteOrder

log = logging.getLogger(__name__)

WRITERS = 12
"""Transactions at once. Each opens a connection when it is first needed; servers accept a hundred by default."""
GROUP_LIMIT = 32
"""Writes in one transaction: enough to share its cost, few enough that another thread can send meanwhile."""

Group = Sequence[tuple[PostgresWriteJob, FirstStatement]]


class WriteThreads:
    """Accepts writes on the event loop. `write_alone` runs one job and raises its error; `done` is told what was committed."""

    def __init__(
        self,
        order: WriteOrder,
        connection: Callable[[], RetryingConnection],
        write_alone: Callable[[PostgresWriteJob], object],
        done: Callable[[Sequence[PostgresWriteJob]], object],
    ) -> None:
        self._order = order
        self._connection = connection
        self._write_alone = write_alone
        self._done = done
        self._loop = asyncio.get_running_loop()
        self._lock = threading.Lock()
        self._waiting: deque[PostgresWriteJob] = deque()
        self._alone: list[tuple[int, PostgresWriteJob]] = []
        """A heap: the oldest write first, because younger ones may wait for it."""
        self._running = 0
        self._starting = False
        """Whether a thread was woken and has not yet taken anything."""
        self._solitary: set[CodeType] = set()
        """The code of functions that were found to concern more than one session."""
        self._threads = ThreadPoolExecutor(WRITERS, thread_name_prefix="holdfast-write")

    def put(self, job: PostgresWriteJob) -> None:
        with self._lock:
            self._waiting.append(job)
            self._wake_one()

    def close(self) -> None:
        """Write what is queued, then end the threads."""
        self._threads.shutdown(wait=True)

    def _wake_one(self) -> None:
        if not self._starting and self._running < WRITERS and (self._waiting or self._alone):
            try:
                self._threads.submit(self._serve)
            except RuntimeError:  # closing: the threads that run do the rest
                return
            self._starting = True
            self._running += 1

    def _serve(self) -> None:
        """Write until nothing waits."""
        while jobs := self._take():
            if len(jobs) == 1:
                self._run_alone(jobs[0])
            else:
                self._run_all(jobs)

    def _take(self) -> list[PostgresWriteJob]:
        """One job that must run alone, or all that wait, with consecutive tickets."""
        with self._lock:
            self._starting = False
            if self._alone:
                jobs = [heappop(self._alone)[1]]
            else:
                jobs = [self._waiting.popleft() for _ in range(min(GROUP_LIMIT, len(self._waiting)))]
            if jobs:
                self._wake_one()
            else:
                self._running -= 1
            return jobs

    def _run_alone(self, job: PostgresWriteJob) -> None:
        try:
            if not job.answer.done():
                self._write_alone(job)
        except BaseException as e:  # noqa: BLE001 - passed to the caller, whatever it is
            job.error = e
        self._finish([job])

    def _run_all(self, jobs: Sequence[PostgresWriteJob]) -> None:
        # Later writes wait for the place of each earlier one, so those whose callers were cancelled leave first.
        left = [job for job in jobs if job.answer.done()]
        self._finish(left)
        jobs = [job for job in jobs if job not in left]
        group = self._choose(jobs)
        grouped = {id(job) for job, _ in group}
        self._put_alone([job for job in jobs if id(job) not in grouped])
        if not group:
            return
        try:
            self._connection().write_together(partial(run_group, group=group))
        except HoldfastError as e:  # it is unknown whether they were saved
            for job, _ in group:
                job.error = e
        except BaseException as e:  # noqa: BLE001 - it is raised again when the write that caused it runs alone
            log.debug("%d writes run one by one, because their group failed: %r", len(group), e)
            for job, _ in group:
                job.runs_alone = True
        self._solitary.update(job.code for job, _ in group if job.is_solitary and job.code is not None)
        self._finish([job for job, _ in group if not job.runs_alone])
        self._put_alone([job for job, _ in group if job.runs_alone])

    def _choose(self, jobs: Sequence[PostgresWriteJob]) -> Group:
        """Give each write its place in the order; returns those that can share a transaction now."""
        group: list[tuple[PostgresWriteJob, FirstStatement]] = []
        connected = self._connection().is_connected
        for job in jobs:
            first = find_first_statement(job.work)
            try:
                self._order.name(job.ticket, None if first is None else first.key)
            except (WriteConflict, HoldfastError):
                break
            if first is not None and connected and self._can_be_grouped(job, first):
                group.append((job, first))
        return group if len(group) > 1 else []

    def _can_be_grouped(self, job: PostgresWriteJob, first: FirstStatement) -> bool:
        return first.can_be_grouped and job.code not in self._solitary and self._order.is_next(job.ticket)

    def _put_alone(self, jobs: Sequence[PostgresWriteJob]) -> None:
        with self._lock:
            for job in jobs:
                job.error = None
                heappush(self._alone, (job.ticket, job))
            self._wake_one()

    def _finish(self, jobs: Sequence[PostgresWriteJob]) -> None:
        for job in jobs:
            self._order.leave(job.ticket)
        if jobs:
            self._done(jobs)
            self._loop.call_soon_threadsafe(_settle, deque(jobs))


def _settle(waiting: deque[PostgresWriteJob]) -> None:
    """Resume the callers. If one of them ends the program, the event loop resumes the others while it shuts down."""
    try:
        while waiting:
            waiting.popleft().settle()
    finally:
        if waiting:
            asyncio.get_running_loop().call_soon(_settle, waiting)
