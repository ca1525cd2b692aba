"""Signal handling: the first signal drains the work within a time limit, the second ends the process at once.

No signal writes anything into a session. A turn that is still open at the limit is left as after a crash, and the next
worker recovers it.
"""

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any

from holdfast.cli.errors import INTERRUPTED
from holdfast.model.errors import Unavailable
from holdfast.tasks import running, wait_for_first

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
DRAIN_SIGNAL = signal.SIGUSR1
"""From a supervising process to its server processes: drain. Those may get a SIGTERM of the service manager as well, so that a
second one of these would end them at once."""


@contextmanager
def catch_signals(on_first: Callable[[int], object]) -> Iterator[None]:
    """Within the block, the first signal calls `on_first` with its number, and the next one ends the process."""
    loop = asyncio.get_running_loop()
    received: list[int] = []

    def handle(number: int) -> None:
        received.append(number)
        if len(received) > 1:
            os._exit(INTERRUPTED)
        on_first(number)

    handled = [number for number in SIGNALS if is_not_ignored(number)]
    for number in handled:
        loop.add_signal_handler(number, handle, number)
    try:
        yield
    finally:
        for number in handled:
            loop.remove_signal_handler(number)


class Signalled(Exception):
    """A signal arrived while the chat was waiting for the next line."""


class SignalInbox:
    """Signals of a program that alternates between an event loop and a blocking read. None is lost in between.

    At a terminal, SIGINT affects only the current line or turn.
    """

    def __init__(self, *, interactive: bool) -> None:
        self._interactive = interactive
        self._received: list[int] = []
        self._is_reading = False
        self._react: Callable[[int], object] = lambda number: None

    @contextmanager
    def installed(self) -> Iterator[None]:
        before = {number: signal.signal(number, self._handle) for number in SIGNALS if is_not_ignored(number)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    @contextmanager
    def reading(self) -> Iterator[None]:
        """While the main thread blocks: a signal raises Signalled, or KeyboardInterrupt if it affects only the line."""
        self._is_reading = True
        try:
            if self._received:
                raise Signalled
            yield
        finally:
            self._is_reading = False

    @contextmanager
    def reacting(self, react: Callable[[int], object]) -> Iterator[None]:
        """While the event loop runs a turn: the first signal calls `react` there, the second ends the process."""
        loop = asyncio.get_running_loop()
        self._react = lambda number: loop.call_soon_threadsafe(react, number)
        try:
            for number in self._received:
                self._react(number)
            yield
        finally:
            self._react = lambda number: None
            if self._interactive and self._received == [signal.SIGINT]:
                self._received.clear()

    def ends_chat(self, number: int) -> bool:
        return number != signal.SIGINT or not self._interactive

    @property
    def is_ending(self) -> bool:
        """Whether a signal that ends the chat has arrived."""
        return any(self.ends_chat(number) for number in self._received)

    def _handle(self, number: int, frame: object) -> None:
        if self._is_reading and not self.ends_chat(number):
            raise KeyboardInterrupt
        if self._received:
            os._exit(INTERRUPTED)
        self._received.append(number)
        if self._is_reading:
            raise Signalled
        self._react(number)


def is_not_ignored(number: signal.Signals) -> bool:
    """Whether to handle a signal: not if the process was started with it ignored, as by `nohup`."""
    return signal.getsignal(number) != signal.SIG_IGN


async def run_until_signalled(
    work: Coroutine[Any, Any, int | None],
    drain: Callable[[], Awaitable[None]],
    death: "asyncio.Future[None] | None" = None,
) -> int:
    """Run the work and return its exit status. On a signal, drain; the status is then 130, unless the work itself failed.

    Raises the exception of `death` if that comes first.
    """
    arrived = asyncio.Event()
    async with running(work, arrived.wait()) as (task, signalled):
        with catch_signals(lambda number: arrived.set()):
            await wait_for_first(task, signalled, *(() if death is None else (death,)))
            if death is not None and death.done():
                death.result()
            if not task.done():
                await drain()
                await asyncio.wait({task}, timeout=0.5)
            if task.done():
                try:
                    status = task.result() or 0
                except Unavailable:
                    if arrived.is_set():  # caused by our own drain
                        return INTERRUPTED
                    raise
                return INTERRUPTED if arrived.is_set() and status == 0 else status
            return INTERRUPTED
