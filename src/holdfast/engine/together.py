"""Tasks that belong together: if one fails the others are stopped, and its own error comes out."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


async def all_of(*work: Coroutine[Any, Any, object]) -> None:
    """Wait for all of them. The first error, or being cancelled, stops the rest before it is passed on."""
    tasks = [asyncio.ensure_future(one) for one in work]
    try:
        await asyncio.gather(*tasks)
    finally:
        await stop(*tasks)


async def first_of(*work: Coroutine[Any, Any, object]) -> None:
    """Wait until one of them ends, and stop the rest. Its error is passed on; so is that of another that failed meanwhile."""
    tasks = [asyncio.ensure_future(one) for one in work]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            if task.done():
                task.result()
    finally:
        await stop(*tasks)


async def beside(main: Coroutine[Any, Any, T], helper: Coroutine[Any, Any, None]) -> T:
    """The result of `main`, while `helper` runs beside it for as long as that takes. An error of either is the error of both."""
    tasks = asyncio.ensure_future(main), asyncio.ensure_future(helper)
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        if not tasks[0].done():
            tasks[1].result()
            raise AssertionError("the helper ended before the work it helps")
        return tasks[0].result()
    finally:
        await stop(*tasks)


async def whole(work: Coroutine[Any, Any, T]) -> T:
    """The result of work that must not be left half done: if we are cancelled, it is finished first.

    A write that was handed to the store takes place whether or not somebody still waits for it; what
    belongs to it in memory has to follow.
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


async def stop(*tasks: "asyncio.Future[Any]") -> None:
    """Cancel whatever still runs, and wait until it has ended."""
    running = [task for task in tasks if not task.done()]
    for task in running:
        task.cancel()
    if running:
        await asyncio.wait(running)
    for task in tasks:
        if not task.cancelled():
            task.exception()  # seen by whoever waited for the first one
