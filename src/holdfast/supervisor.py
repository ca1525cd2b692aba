"""Runs the background tasks of a process: each has a name, is restarted when it fails, and publishes its state.

A task fails by raising any exception, or by returning: a background task is not meant to end. The first failure of a
streak is logged with its traceback, the following ones are only counted. A completed cycle of work ends the streak.

A task can also hang without failing. So each declares how often it completes a cycle, and counts as down when the next
one is late. A task that waits until it is needed completes empty cycles meanwhile.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Mapping
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Any, Literal, Self

import msgspec

from holdfast.model.times import Clock
from holdfast.tasks import Tasks, raise_if_cancelled, stop

logger = logging.getLogger(__name__)
FIRST_PAUSE, LONGEST_PAUSE = 0.2, 5.0
"""Seconds before a failed task is restarted: the first time, and at most."""
DOWN_SECONDS = 30.0
"""How long a task may fail without a completed cycle before it counts as down."""
OVERDUE_SECONDS = 120.0
"""How late a cycle may be before its task counts as down: twice the time limit of the store."""
IDLE_SECONDS = 30.0
"""How often a task completes an empty cycle while it waits."""

State = Literal["running", "failing", "down", "ended"]


class Finished(Exception):
    """Raised by a task that has finished, with the reason. It is not restarted."""


class TaskStatus(msgspec.Struct, frozen=True):
    """The status of a background task. Times are microseconds of the wall clock."""

    name: str
    state: State
    cycle_at: int | None
    """When it last completed a cycle."""
    failures: int
    error: str = ""
    """The last failure, or why it ended."""
    error_at: int | None = None


class TaskReport:
    """The report of a task. Thread-safe."""

    def __init__(self, name: str, clock: Clock, *, limit: float) -> None:
        self.name = name
        self.failures = 0
        self._clock = clock
        self._limit = limit
        self._cycle_at: int | None = None
        self._cycle_mono = clock.monotonic()
        self._failing_since: float | None = None
        self._error, self._error_at = "", None  # type: tuple[str, int | None]
        self._ended = False
        self._overdue = False
        """Whether the delay of the current cycle was already logged."""

    def completed(self) -> None:
        """Record a completed cycle, which ends a series of failures."""
        if self._failing_since is not None:
            logger.info("task %s recovered after %d failures in total", self.name, self.failures)
        self._cycle_at, self._cycle_mono = self._clock.now(), self._clock.monotonic()
        self._failing_since = None
        self._overdue = False

    def failed(self, error: BaseException) -> None:
        self.failures += 1
        self._error, self._error_at = f"{type(error).__name__}: {error}"[:500], self._clock.now()
        if self._failing_since is None:
            self._failing_since = self._clock.monotonic()
            logger.error("task %s failed and will be restarted: %s", self.name, self._error, exc_info=error)

    def ended(self, reason: str) -> None:
        self._ended, self._error = True, reason

    def status(self) -> TaskStatus:
        return TaskStatus(self.name, self._state(), self._cycle_at, self.failures, self._error, self._error_at)

    def _state(self) -> State:
        now = self._clock.monotonic()
        if self._ended:
            return "ended"
        if self._failing_since is not None:
            return "down" if now - self._failing_since > DOWN_SECONDS else "failing"
        if now - self._cycle_mono <= self._limit:
            return "running"
        if not self._overdue:
            self._overdue = True
            logger.error("task %s hangs: it has not completed a cycle for %.0f s", self.name, now - self._cycle_mono)
        return "down"


Completed = Callable[[], None]
"""A task calls this after each cycle."""
Factory = Callable[[Completed], Coroutine[Any, Any, None]]
"""Creates the coroutine for each start."""


class BackgroundTask(msgspec.Struct, frozen=True):
    """A task's function, its cycle time, and how late a cycle may be, in seconds."""

    factory: Factory
    every: float
    late: float = OVERDUE_SECONDS


def ignore_cycle() -> None:
    """For work without a supervisor: reports nothing."""


async def until_set(wanted: asyncio.Event, completed: Completed) -> None:
    """Wait until the event is set. Waiting completes cycles."""
    while not wanted.is_set():
        completed()
        try:
            async with asyncio.timeout(IDLE_SECONDS):
                await wanted.wait()
        except TimeoutError:
            continue


class Supervisor:
    """One per process. Closing it ends all tasks."""

    def __init__(self, clock: Clock, *, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep) -> None:
        self._clock = clock
        self._sleep = sleep
        self._tasks = Tasks()
        self._reports: list[TaskReport] = []

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        await self._tasks.close()

    def start(self, name: str, work: BackgroundTask) -> "asyncio.Task[None]":
        """Run the work until it is stopped."""
        report = self.watch(name, every=work.every, late=work.late)
        task = self._tasks.start(self._run(report, work.factory), name=name)
        task.add_done_callback(lambda _: self.forget(report))
        return task

    @asynccontextmanager
    async def running(self, tasks: Mapping[str, BackgroundTask]) -> AsyncIterator[None]:
        """Run several tasks during the block."""
        started = [self.start(name, work) for name, work in tasks.items()]
        try:
            yield
        finally:
            await stop(*started)

    def watch(self, name: str, *, every: float, late: float = OVERDUE_SECONDS) -> TaskReport:
        """Publish the state of work that runs elsewhere, such as in a thread."""
        report = TaskReport(name, self._clock, limit=every + late)
        self._reports.append(report)
        return report

    def forget(self, report: TaskReport) -> None:
        if report in self._reports:
            self._reports.remove(report)

    def statuses(self) -> list[TaskStatus]:
        return sorted((report.status() for report in tuple(self._reports)), key=lambda status: status.name)

    async def _run(self, report: TaskReport, factory: Factory) -> None:
        pause = Pauses()
        while True:
            try:
                await factory(pause.reset_by(report.completed))
                raise RuntimeError("the task returned; a background task must not return")
            except Finished as e:
                report.ended(str(e))
                await asyncio.Event().wait()
            except Exception as e:  # noqa: BLE001 - the report logs, counts and shows it
                report.failed(e)
                raise_if_cancelled()  # the task fails because it is being stopped: it is not restarted
            await self._sleep(pause.next())


class Pauses:
    """Delays before restarts: doubled each time up to a limit, reset by a completed cycle."""

    def __init__(self) -> None:
        self._pause = FIRST_PAUSE

    def reset_by(self, completed: Completed) -> Completed:
        def reset() -> None:
            self._pause = FIRST_PAUSE
            completed()
            raise_if_cancelled()  # a library may have lost the cancellation, as `wait_for` of Python 3.11 does

        return reset

    def next(self) -> float:
        pause, self._pause = self._pause, min(2 * self._pause, LONGEST_PAUSE)
        return pause


def list_down(statuses: Iterable[TaskStatus]) -> list[TaskStatus]:
    """The tasks in the state `down`."""
    return [status for status in statuses if status.state == "down"]


def describe_failure(status: TaskStatus) -> str:
    """The message about a task that is down."""
    return f"{status.name} is down: {status.error or 'its cycle is overdue'}"


def encode_statuses(statuses: list[TaskStatus]) -> str:
    """Serialize the states for the store, where other processes read them."""
    return msgspec.json.encode(statuses).decode()


def decode_statuses(text: str) -> list[TaskStatus]:
    """Parse the output of `encode_statuses`. Empty if another release wrote a different format."""
    try:
        return msgspec.json.decode(text or "[]", type=list[TaskStatus])
    except msgspec.MsgspecError:
        return []
