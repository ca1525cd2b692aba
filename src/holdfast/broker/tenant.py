"""A user as the running broker sees them: their worker, their open requests, and when they were last there.

At any moment at most one *change* goes on, a start or a stop. Whoever needs the worker waits for the change, however it came
about; a client that leaves meanwhile does not disturb it.

| the worker | a request | the clock |
|---|---|---|
| is not there | starts it | starts it if a schedule is due |
| runs | goes to it | stops it when it was idle for long enough and says so itself |
| is about to end | waits for its end, then starts it | kills it after a while |
| has died | starts it | starts it: it may have been in the middle of something |
| hangs | waits | kills it if it has not answered for a minute, while somebody waits |
| has a user with too many files | is refused | stops it |
"""

import asyncio
import logging
import signal
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holdfast.broker.pace import Pace
from holdfast.broker.users import User
from holdfast.broker.worker import Idle, Worker
from holdfast.model.errors import DiskFull, HoldfastError, RateLimited, Unavailable
from holdfast.model.times import micros

logger = logging.getLogger(__name__)
SHORT_LIFE = 10.0
"""A worker that died sooner counts as one that fails."""
PATIENCE = 3
"""How many such deaths in a row are answered at once; after that, each start waits twice as long as the one before."""
SILENCES = 3
GIVE_UP = 8
"""After so many, nobody but a request starts it again."""


@dataclass(frozen=True, slots=True)
class Rules:
    """What holds for every user."""

    idle_seconds: float
    stop_seconds: float
    requests: int
    longest_wait: float = 30.0
    """Before a worker is started that has died again and again."""
    look_seconds: float = 20.0
    """How often a worker that somebody waits for is asked whether it lives."""
    answer_seconds: float = 10.0
    """How long it may take to say so. After `SILENCES` times without an answer it counts as hanging."""


WAKE = "wake"


def read_wake(run: Path) -> int | None:
    """When a worker that sleeps has to be there again."""
    try:
        return int((run / WAKE).read_text("ascii"))
    except (FileNotFoundError, ValueError):
        return None


def write_wake(run: Path, at: int | None) -> None:
    if at is None:
        (run / WAKE).unlink(missing_ok=True)
    else:
        (run / WAKE).write_text(str(at), "ascii")


def _when(told: Idle) -> int | None:
    return None if told.wake_at is None else micros(told.wake_at)


Start = Callable[[User], Awaitable[Worker]]


class Tenant:
    def __init__(self, user: User, rules: Rules, start: Start, pace: Pace, monotonic: Callable[[], float]) -> None:
        self.user = user
        self.pace = pace
        self.worker: Worker | None = None
        self.open = 0
        self.starts = 0
        self.deaths = 0
        """In a row, each soon after its start."""
        self.wake_at: int | None = None
        self.complaint = ""
        self.disk: int | None = None
        """What their files take, in bytes, when they were last counted."""
        self.full = ""
        """Why they are not served, for as long as that is too much."""
        self._rules = rules
        self._start = start
        self._monotonic = monotonic
        self._used = self._born = monotonic()
        self._wanted = False
        self._change: asyncio.Task[None] | None = None
        self._looking: asyncio.Task[None] | None = None
        self._looked = monotonic()
        self._silences = 0

    # what requests do

    @contextmanager
    def visit(self) -> Iterator[None]:
        """While this lasts, a request is open. Raises RateLimited if there are too many of them."""
        if self.open >= self._rules.requests:
            raise RateLimited(f"{self.user.name} has {self.open} open requests, which is the limit", retry_after=1)
        self.open += 1
        try:
            yield
        finally:
            self.open -= 1
            self._used = self._monotonic()

    async def awake(self, failed: Worker | None = None) -> Worker:
        """The worker, ready to be asked. `failed` is one that has just let the caller down. Raises Unavailable or DiskFull."""
        while True:
            if self.full:
                raise DiskFull(self.full)
            if (change := self._change) is not None:
                await asyncio.wait({change})  # a step of the loop at the least, in which `_done` is heard
                change.result()
            elif self.worker is not None and self.worker is not failed and not self.worker.gone.is_set():
                return self.worker
            else:
                self._begin(self._renew(failed))
                failed = None  # the change sees to it, once

    # what the broker does

    def take_on(self, worker: Worker) -> None:
        """A worker that was there before the broker was."""
        self.worker, self._wanted, self._born = worker, True, self._monotonic()

    def miss(self) -> None:
        """A worker that was there before the broker was, and is no more: it may have been in the middle of something."""
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

    def tend(self, now: int) -> None:
        """Look whether something is to be done, and begin it."""
        if self._change is not None:
            return
        if self.worker is not None and self.worker.gone.is_set():
            self._note_death()
        due = self.wake_at is not None and self.wake_at <= now
        if self.full:
            if self.worker is not None:
                self._begin(self._leave(self.worker, self.full))
        elif self.worker is None:
            if (self._wanted and self.deaths < GIVE_UP) or due:
                self._begin(self._renew(None))
        elif self.worker.state.key != self.user.worker_key:
            self._begin(self._put_to_sleep("it has another key now"))
        elif not self.open and self._monotonic() - self._used >= self._rules.idle_seconds:
            self._begin(self._reclaim())
        elif self.open and self._looking is None and self._monotonic() - self._looked >= self._rules.look_seconds:
            self._looking = asyncio.create_task(self._look(self.worker), name=f"look at {self.user.name}")

    async def _look(self, worker: Worker) -> None:
        """A worker that hangs while somebody waits is killed: nothing is lost with it, and nobody else would do it."""
        try:
            self._silences = 0 if await worker.responds(self._rules.answer_seconds) else self._silences + 1
            if self._silences >= SILENCES and not worker.gone.is_set():
                logger.warning("the worker of %s does not answer and is killed", self.user.name)
                worker.signal(signal.SIGKILL)
        finally:
            self._looked, self._looking = self._monotonic(), None

    async def leave(self, why: str) -> None:
        """End the worker for good, after whatever goes on."""
        while self._change is not None:
            await asyncio.wait({self._change})
        if self._looking is not None:
            self._looking.cancel()
        if self.worker is not None:
            self._begin(self._leave(self.worker, why))
            assert self._change is not None, "it has just begun"
            await asyncio.shield(self._change)

    async def _leave(self, worker: Worker, why: str) -> None:
        """As if it were idle; if it is not, it is started again as soon as it may be."""
        told = await worker.idle()
        self.wake_at = _when(told) if told is not None and told.idle else 0
        await self._put_to_sleep(why)

    # changes

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        assert self._change is None, "one at a time"
        self._change = asyncio.create_task(work, name=f"change of {self.user.name}")
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
        lived = self._monotonic() - self._born
        self.deaths = self.deaths + 1 if lived < SHORT_LIFE else 1
        self._wanted, self.worker = True, None
        logger.warning("the worker of %s has ended after %.0f s, unasked", self.user.name, lived)

    async def _renew(self, failed: Worker | None) -> None:
        """See off the one that failed, and start another."""
        if failed is not None and self.worker is failed and not failed.gone.is_set():
            if await failed.answers():
                return  # it was the connection, not the worker
            if not await failed.wait_or_kill(self._rules.stop_seconds):
                logger.warning("the worker of %s did not answer and was killed", self.user.name)
        if self.worker is not None:
            self._note_death()
        if self.deaths > PATIENCE:
            await asyncio.sleep(min(self._rules.longest_wait, 0.5 * 2 ** (self.deaths - PATIENCE)))
        try:
            self.worker = await self._start(self.user)
        except Unavailable:
            self.deaths += 1
            raise
        self.starts += 1
        self.wake_at = None
        self._wanted, self._silences = True, 0
        self._born = self._used = self._looked = self._monotonic()
        logger.info("the worker of %s runs as %d", self.user.name, self.worker.state.pid)

    async def _reclaim(self) -> None:
        """End a worker that nobody needs. It is asked itself, for it may be at something that nobody waits for."""
        assert self.worker is not None, "it runs"
        told: Idle | None = await self.worker.idle()
        if told is None or not told.idle or self.open:
            self._used = self._monotonic()
            return
        self.wake_at = _when(told)
        await self._put_to_sleep("it was idle")

    async def _put_to_sleep(self, why: str) -> None:
        worker = self.worker
        assert worker is not None, "it runs"
        by_itself = await worker.stop(self._rules.stop_seconds)
        logger.info(
            "the worker of %s was stopped: %s%s", self.user.name, why, "" if by_itself else "; it had to be killed"
        )
        self.worker, self._wanted, self.deaths = None, False, 0
        write_wake(worker.run, self.wake_at)
        (worker.run / "state.json").unlink(missing_ok=True)
