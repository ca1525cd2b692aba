"""The ways out of a chat: well, by a signal, or because the terminal is gone. None of them puts words into the session.

A signal or a closed terminal drains: the step in hand is finished within a limit, and a turn that is still open
then is left as a crash would have left it. A second signal leaves at once.
"""

import asyncio
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager

from holdfast.cli import errors, render
from holdfast.cli.chat.terminal import Terminal
from holdfast.cli.chat.tty import Modes, Tty
from holdfast.cli.signals import is_heard
from holdfast.model.entry import Entry
from holdfast.model.errors import Unavailable
from holdfast.model.session import Session

DRAINING = (signal.SIGTERM, signal.SIGHUP)


class Leaving:
    def __init__(self, terminal: Terminal, tty: Tty) -> None:
        self._terminal = terminal
        self._tty = tty
        self._modes = Modes()
        self._is_called = False

    async def run(self, first: tuple[Session, list[Entry]] | None) -> int:
        """The whole chat; its exit status."""
        with self._on_signals():
            try:
                await self._terminal.run(first)
            except EOFError:  # the terminal is gone
                self._is_called = self._tty.is_gone = True
            except Unavailable:
                if not self._is_called:
                    raise
            if self._is_called:
                await self._terminal.engine.drain()
                if self._tty.is_gone:
                    render.give_up()
                return errors.INTERRUPTED
        await self._terminal.say_goodbye()
        return errors.DONE

    @contextmanager
    def _on_signals(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGINT, self._terminal.interrupt)
        draining = [number for number in DRAINING if is_heard(number)]
        for number in draining:
            loop.add_signal_handler(number, self._called, number)
        try:
            yield
        finally:
            for number in (signal.SIGINT, *draining):
                loop.remove_signal_handler(number)

    def _called(self, number: int) -> None:
        if self._is_called:
            self._modes.restore()
            os._exit(errors.INTERRUPTED)
        self._is_called = True
        if number == signal.SIGHUP:
            self._tty.is_gone = True
        self._terminal.start(self._drain())

    async def _drain(self) -> None:
        if self._terminal.is_working():
            self._terminal.tell("Leaving; the step in hand is finished first.")
        await self._terminal.engine.drain()
        self._terminal.exit()
