"""A user in the running broker: their worker, open requests and last activity.

At most one *change*, a start or a stop, runs at a time. Whoever needs the worker waits for the change, whatever caused it;
a client that disconnects meanwhile does not disturb it.

| the worker | a request | maintenance |
|---|---|---|
| is not running | starts it | starts it if a schedule is due |
| runs | goes to it | stops it after the idle time if it reports itself idle |
| is shutting down | waits for its end, then starts it | kills it after the stop timeout |
| has died | starts it | starts it: it may have been running a turn |
| hangs | waits | kills it if it has not responded for a minute while a request is open |
| has a user above the disk quota | is refused | stops it |
"""

import asyncio
import logging
import signal
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holdfast.broker.rate_limit import RateLimit
from holdfast.broker.users import User
from holdfast.broker.worker import IdleReport, WorkerProcess
from holdfast.model.errors import DiskFull, HoldfastError, RateLimited, Unavailable
from holdfast.model.times import micros
from holdfast.tasks import Tasks

logger = logging.getLogger(__name__)
SHORT_LIFE_SECONDS = 10.0
"""A worker that dies sooner counts as failing."""
FREE_RESTARTS = 3
"""Consecutive early deaths without a delay; after that, each start waits twice as long as the one before."""
MAX_SILENCES = 3
MAX_RESTARTS = 8
"""After this many, only a request starts it again."""


@dataclass(frozen=True, slots=True)
class TenantLimits:
    """Limits of every user."""

    idle_seconds: float
    stop_seconds: float
    requests: int
    longest_wait: float = 30.0
    """Longest delay before a failing worker is started."""
    check_seconds: float = 20.0
    """How often a worker with open requests is checked."""
    answer_seconds: float = 10.0
    """Time limit of that check. After `MAX_SILENCES` failed checks the worker counts as hanging."""


WAKE_FILE = "wake"


def read_wake(run: Path) -> int | None:
    """Return when a sleeping worker must run again."""
    try:
        return int((run / WAKE_FILE).read_text("ascii"))
    except (FileNotFoundError, ValueError):
        return None


def write_wake(run: Path, at: int | None) -> None:
    if at is None:
        (run / WAKE_FILE).unlink(missing_ok=True)
    else:
        (run / WAKE_FILE).write_text(str(at), "ascii")


def _wake_time(report: IdleReport) -> int | None:
    return None if report.wake_at is None else micros(report.wake_at)


Start = Callable[[User], Awaitable[WorkerProcess]]


class Tenant:
    def __init__(
        self, user: User, rules: TenantLimits, start: Start, rate_limit: RateLimit, monotonic: Callable[[], float]
    ) -> None:
        self.user = user
        self.rate_limit = rate_limit
        self.worker: WorkerProcess | None = None
        self.open = 0
        self.starts = 0
        self.deaths = 0
        """Consecutive deaths, each soon after its start."""
        self.wake_at: int | None = None
        self.complaint = ""
        self.disk: int | None = None
        """Disk usage in bytes at the last count."""
        self.full = ""
        """Why requests are refused, while the disk usage exceeds the quota."""
        self._rules = rules
        self._start = start
        self._monotonic = monotonic
        self._used = self._started_at = monotonic()
        self._wanted = False
        self._tasks = Tasks()
        self._changes = Tasks(on_failure=None)  # `_done` handles failures
        self._change: asyncio.Task[None] | None = None
        self._checking: asyncio.Task[None] | None = None
        self._checked = monotonic()
        self._silences = 0

    # used by requests

    @contextmanager
    def track_request(self) -> Iterator[None]:
        """Count an open request. Raises RateLimited if there are too many."""
        if self.open >= self._rules.requests:
            raise RateLimited(f"{self.user.name} has reached the limit of {self.open} open requests", retry_after=1)
        self.open += 1
        try:
            yield
        finally:
            self.open -= 1
            self._used = self._monotonic()

    async def get_worker(self, failed: WorkerProcess | None = None) -> WorkerProcess:
        """Return a running worker. `failed` is one that just failed a request. Raises Unavailable or DiskFull."""
        while True:
            if self.full:
                raise DiskFull(self.full)
            if (change := self._change) is not None:
                await asyncio.wait({change})  # at least one loop step, in which `_done` runs
                change.result()
            elif self.worker is not None and self.worker is not failed and not self.worker.gone.is_set():
                return self.worker
            else:
                self._begin(self._restart(failed))
                failed = None  # the change handles it, once

    # used by the broker

    def adopt(self, worker: WorkerProcess) -> None:
        """Adopt a worker that ran before the broker started."""
        self.worker, self._wanted, self._started_at = worker, True, self._monotonic()

    def mark_lost(self) -> None:
        """Note that a worker died while no broker ran: it may have been running a turn."""
        self._wanted = True

    @property
    def state(self) -> str:
        if self._change is not None:
            return "changing"
        if self.full:
            return "full"
        if self.worker is None:
            return "failing" if self.complaint else "asleep"
        return "running"

    def maintain(self, now: int) -> None:
        """Start the change that is due, if any."""
        if self._change is not None:
            return
        if self.worker is not None and self.worker.gone.is_set():
            self._note_death()
        due = self.wake_at is not None and self.wake_at <= now
        if self.full:
            if self.worker is not None:
                self._begin(self._stop_for_good(self.worker, self.full))
        elif self.worker is None:
            if (self._wanted and self.deaths < MAX_RESTARTS) or due:
                self._begin(self._restart(None))
        elif self.worker.state.key != self.user.worker_key:
            self._begin(self._stop("its key has changed"))
        elif not self.open and self._monotonic() - self._used >= self._rules.idle_seconds:
            self._begin(self._stop_if_idle())
        elif self.open and self._checking is None and self._monotonic() - self._checked >= self._rules.check_seconds:
            self._checking = self._tasks.start(self._check_response(self.worker), name=f"check {self.user.name}")

    async def _check_response(self, worker: WorkerProcess) -> None:
        """Kill a worker that hangs while a request is open: nothing is lost, and nothing else would do it."""
        try:
            self._silences = 0 if await worker.responds(self._rules.answer_seconds) else self._silences + 1
            if self._silences >= MAX_SILENCES and not worker.gone.is_set():
                logger.warning("killing the worker of %s: it does not respond", self.user.name)
                worker.signal(signal.SIGKILL)
        finally:
            self._checked, self._checking = self._monotonic(), None

    async def leave(self, why: str) -> None:
        """Stop the worker after the current change, if any."""
        while self._change is not None:
            await asyncio.wait({self._change})
        await self._tasks.close()
        if self.worker is not None:
            self._begin(self._stop_for_good(self.worker, why))
            assert self._change is not None, "_begin sets it"
            await asyncio.shield(self._change)

    async def _stop_for_good(self, worker: WorkerProcess, why: str) -> None:
        """Stop the worker. If it is not idle, it is started again as soon as possible."""
        report = await worker.idle()
        self.wake_at = _wake_time(report) if report is not None and report.idle else 0
        await self._stop(why)

    # changes

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        assert self._change is None, "one at a time"
        self._change = self._changes.start(work, name=f"change of {self.user.name}")
        self._change.add_done_callback(self._done)

    def _done(self, change: "asyncio.Task[None]") -> None:
        self._change = None
        if change.cancelled():
            return
        error = change.exception()
        self.complaint = str(error) if error is not None else ""
        if error is not None:
            logger.warning("the worker of %s: %s", self.user.name, error, exc_info=not isinstance(error, HoldfastError))

    def _note_death(self) -> None:
        assert self.worker is not None, "it was there"
        lived = self._monotonic() - self._started_at
        self.deaths = self.deaths + 1 if lived < SHORT_LIFE_SECONDS else 1
        self._wanted, self.worker = True, None
        logger.warning("the worker of %s died after %.0f s", self.user.name, lived)

    async def _restart(self, failed: WorkerProcess | None) -> None:
        """Wait for the end of the failed worker and start another."""
        if failed is not None and self.worker is failed and not failed.gone.is_set():
            if await failed.is_ready():
                return  # the connection failed, not the worker
            if not await failed.wait_or_kill(self._rules.stop_seconds):
                logger.warning("killed the worker of %s: it did not respond", self.user.name)
        if self.worker is not None:
            self._note_death()
        if self.deaths > FREE_RESTARTS:
            await asyncio.sleep(min(self._rules.longest_wait, 0.5 * 2 ** (self.deaths - FREE_RESTARTS)))
        try:
            self.worker = await self._start(self.user)
        except Unavailable:
            self.deaths += 1
            raise
        self.starts += 1
        self.wake_at = None
        self._wanted, self._silences = True, 0
        self._started_at = self._used = self._checked = self._monotonic()
        logger.info("started the worker of %s, pid %d", self.user.name, self.worker.state.pid)

    async def _stop_if_idle(self) -> None:
        """Stop an idle worker. It must confirm that it is idle, because it may be running a turn without a client."""
        assert self.worker is not None, "it runs"
        report: IdleReport | None = await self.worker.idle()
        if report is None or not report.idle or self.open:
            self._used = self._monotonic()
            return
        self.wake_at = _wake_time(report)
        await self._stop("it was idle")

    async def _stop(self, why: str) -> None:
        worker = self.worker
        assert worker is not None, "it runs"
        by_itself = await worker.stop(self._rules.stop_seconds)
        logger.info("stopped the worker of %s: %s%s", self.user.name, why, "" if by_itself else "; it had to be killed")
        self.worker, self._wanted, self.deaths = None, False, 0
        write_wake(worker.run, self.wake_at)
        (worker.run / "state.json").unlink(missing_ok=True)
