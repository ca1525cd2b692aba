"""Signals: the first asks the work to come to an end within a limit, the second ends the process at once.

No signal writes anything into a session. A turn that is still open when the limit is reached is left
as a crash would have left it, and is taken up by whoever comes next.
"""

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

from holdfast.cli.errors import INTERRUPTED
from holdfast.model.errors import Unavailable

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def caught(on_first: Callable[[int], object]) -> Iterator[None]:
    """While this lasts, the first signal calls `on_first` with its number, and the next one leaves at once."""
    loop = asyncio.get_running_loop()
    seen: list[int] = []

    def arrive(number: int) -> None:
        seen.append(number)
        if len(seen) > 1:
            os._exit(INTERRUPTED)
        on_first(number)

    heard = [number for number in SIGNALS if is_heard(number)]
    for number in heard:
        loop.add_signal_handler(number, arrive, number)
    try:
        yield
    finally:
        for number in heard:
            loop.remove_signal_handler(number)


def is_heard(number: signal.Signals) -> bool:
    """Whether a signal is to be minded: not if we were started with it ignored, as `nohup` does."""
    return signal.getsignal(number) != signal.SIG_IGN


async def unless_signalled(
    work: Awaitable[int | None], drain: Callable[[], Awaitable[None]], death: "asyncio.Future[None] | None" = None
) -> int:
    """The exit status of the work; or, when a signal comes, drain and then 130, or what the work came to by then.

    Raises what `death` fails with, should that come first.
    """
    arrived = asyncio.Event()
    task = asyncio.ensure_future(work)
    bell = asyncio.ensure_future(arrived.wait())
    with caught(lambda number: arrived.set()):
        ends: set[asyncio.Future[object]] = {task, bell} if death is None else {task, bell, death}  # type: ignore[arg-type] # any result will do
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        if death is not None and death.done():
            task.cancel()
            bell.cancel()
            death.result()
        if not task.done():
            await drain()
            await asyncio.wait({task}, timeout=0.5)
        bell.cancel()
        if task.done():
            try:
                status = task.result() or 0
            except Unavailable:
                if arrived.is_set():  # it was we who left
                    return INTERRUPTED
                raise
            return INTERRUPTED if arrived.is_set() and status == 0 else status
        task.cancel()
        await asyncio.wait({task})
        return INTERRUPTED
