"""Tasks that cannot outlive their caller, which cancels them and waits for their end.

`supervisor.py` runs tasks that last as long as the process. No other module creates tasks.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Coroutine, Generator, Iterator
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from contextvars import Context
from typing import Any, Generic, TypeVar, overload

T = TypeVar("T")
U = TypeVar("U")
Work = Coroutine[Any, Any, T]
logger = logging.getLogger(__name__)


async def run_all(*work: Work[T]) -> list[T]:
    """Run all of them and return their results. The first error or a cancellation stops the rest before it propagates.

    `asyncio.gather` instead propagates a cancellation as soon as the first of them has ended.
    """
    async with running(*work) as tasks:
        if tasks:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
        for task in tasks:
            if task.done():
                task.result()
        return [task.result() for task in tasks]


async def run_until_first(*work: Work[object]) -> None:
    """Run until one of them ends, and stop the rest. Raises its error, or that of another that failed meanwhile."""
    async with running(*work) as tasks:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            if task.done():
                task.result()


class LateHelper:
    """Work that runs beside other work, from `start` on. Most work ends before its helper is needed, and costs no task."""

    def __init__(self, work: Callable[[], Work[None]]) -> None:
        self._work = work
        self._task: asyncio.Task[None] | None = None
        self._main: asyncio.Timeout | None = None
        self._is_over = False

    def start(self) -> None:
        """Start the helper, unless it was started before or the work is over."""
        if self._task is None and not self._is_over:
            self._task = asyncio.create_task(self._work())
            self._task.add_done_callback(self._interrupt_main)

    def _interrupt_main(self, _: object) -> None:
        if self._main is not None and not self._main.expired():
            self._main.reschedule(0)

    async def run_beside(self, main: Work[T], *, after: float) -> T | None:
        """Return the result of `main`. The helper starts after that many seconds at the latest, and stops with `main`.

        A helper that ends first cancels `main`: its error is raised, or None is returned.
        """
        timer = asyncio.get_running_loop().call_later(after, self.start)
        try:
            async with asyncio.timeout(None) as self._main:
                return await main
        except TimeoutError:
            assert self._main is not None
            if not self._main.expired():
                raise
            assert self._task is not None, "only the helper interrupts"
            return self._task.result()
        finally:
            timer.cancel()
            self._main = None
            self._is_over = True
            if self._task is not None:
                await stop(self._task)


async def run_to_completion(work: "Work[T] | asyncio.Future[T]") -> T:
    """Return the result of work that must complete: a cancellation takes effect only afterwards.

    The store completes a write even if the caller no longer waits; the matching change in memory must follow it.
    """
    task = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError as e:
            cancelled = e
    if cancelled is not None:
        if not task.cancelled():
            task.exception()
        raise cancelled
    return task.result()


def submit_to_loop(work: Work[T], loop: asyncio.AbstractEventLoop) -> Future[T]:
    """Run the work on the event loop of another thread. The caller must wait for the result."""
    return asyncio.run_coroutine_threadsafe(work, loop)


async def wait_for_first(*futures: "asyncio.Future[Any]", seconds: float | None = None) -> None:
    """Wait until one of them is done or the time is over. Stops none of them and raises no error."""
    await asyncio.wait(futures, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)


async def stop(*tasks: "asyncio.Future[Any]") -> None:
    """Cancel the tasks that still run, and wait for their end."""
    running = [task for task in tasks if not task.done()]
    for task in running:
        task.cancel()
    if running:
        await asyncio.wait(running)
    for task in tasks:
        if not task.cancelled():
            task.exception()  # the caller gets the error of the first one


@overload
def running(one: Work[T], /) -> AbstractAsyncContextManager[tuple[asyncio.Task[T]]]: ...
@overload
def running(one: Work[T], two: Work[U], /) -> AbstractAsyncContextManager[tuple[asyncio.Task[T], asyncio.Task[U]]]: ...
@overload
def running(*work: Work[object]) -> AbstractAsyncContextManager[tuple[asyncio.Task[Any], ...]]: ...
@asynccontextmanager
async def running(*work: Work[Any]) -> AsyncIterator[Any]:
    """Run the work as tasks during the block. At its end, cancel and await those that still run."""
    tasks = tuple(asyncio.create_task(one) for one in work)
    try:
        yield tasks
    finally:
        await stop(*tasks)


def raise_if_cancelled() -> None:
    """End the current task if it has been asked to stop."""
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError


def log_failure(task: "asyncio.Task[Any]", error: BaseException) -> None:
    logger.error("task %s failed", task.get_name(), exc_info=error)


class Tasks:
    """The tasks of one object, which closes them at its end.

    `on_failure` is called with a task that failed. Pass None if the owner checks the results itself.
    """

    def __init__(self, on_failure: Callable[["asyncio.Task[Any]", BaseException], object] | None = log_failure) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()
        self._on_failure = on_failure

    def start(self, work: Work[T], name: str | None = None, context: Context | None = None) -> "asyncio.Task[T]":
        """Start a task, in a copy of the current context unless another one is given."""
        task = asyncio.create_task(work, name=name, context=context)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def __iter__(self) -> Iterator["asyncio.Task[Any]"]:
        return iter(tuple(self._tasks))

    def __len__(self) -> int:
        return len(self._tasks)

    def cancel(self) -> None:
        """Cancel all of them; `close` waits for their end."""
        for task in self._tasks:
            task.cancel()

    async def close(self) -> None:
        await stop(*self._tasks)

    def _ended(self, task: "asyncio.Task[Any]") -> None:
        self._tasks.discard(task)
        if task.cancelled() or (error := task.exception()) is None:
            return
        if self._on_failure is not None:
            self._on_failure(task, error)


class PromptFuture(Generic[T]):
    """A future for one task, which runs as soon as the result is set, in the same callback of the event loop.

    An `asyncio.Future` resumes its task in the next iteration of the loop, after another look at every socket. Set the
    result only in a callback of the loop, in which no task runs. A cancellation comes from another task, so it goes
    through the loop.
    """

    __slots__ = ("_asyncio_future_blocking", "_context", "_done", "_error", "_loop", "_result", "_resume")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._asyncio_future_blocking = False
        self._loop = loop
        self._done = False
        self._result: T | None = None
        self._error: BaseException | None = None
        self._resume: Callable[[Any], object] | None = None
        self._context: Context | None = None

    def __await__(self) -> Generator[Any, None, T]:
        if not self._done:
            self._asyncio_future_blocking = True
            yield self
        return self.result()

    def get_loop(self) -> asyncio.AbstractEventLoop:
        return self._loop

    def done(self) -> bool:
        return self._done

    def result(self) -> T:
        if self._error is not None:
            raise self._error
        return self._result  # type: ignore[return-value] # it is set

    def set_result(self, result: T) -> None:
        """Answer, and run the waiting task until it waits for something else."""
        self._result = result
        self._settle()

    def set_exception(self, error: BaseException) -> None:
        self._error = error
        self._settle()

    def add_done_callback(self, resume: Callable[[Any], object], *, context: Context) -> None:
        self._resume, self._context = resume, context

    def cancel(self, msg: str | None = None) -> bool:
        if self._done:
            return False
        self._done, self._error = True, asyncio.CancelledError(*([] if msg is None else [msg]))
        if self._resume is not None:
            self._loop.call_soon(self._resume, self, context=self._context)
        return True

    def _settle(self) -> None:
        self._done = True
        if self._resume is not None and self._context is not None:
            self._context.run(self._resume, self)
