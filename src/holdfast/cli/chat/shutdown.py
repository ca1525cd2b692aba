"""Ends a chat: normally, on a signal, or when the terminal is closed. None of them adds a message to the session.

A signal or a closed terminal drains: the current step is finished within a limit, and a turn that is still open then is
left as after a crash. A second signal ends the process at once.
"""

import asyncio
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager

from holdfast.cli import errors, render
from holdfast.cli.chat.app import ChatApp
from holdfast.cli.chat.output.tty import TerminalModes, Tty
from holdfast.cli.signals import is_not_ignored
from holdfast.model.entry import Entry
from holdfast.model.errors import Unavailable
from holdfast.model.session import Session

DRAINING = (signal.SIGTERM, signal.SIGHUP)


class ChatShutdown:
    def __init__(self, terminal: ChatApp, tty: Tty) -> None:
        self._terminal = terminal
        self._tty = tty
        self._modes = TerminalModes()
        self._is_signalled = False

    async def run(self, first: tuple[Session, list[Entry]] | None) -> int:
        """Run the chat and return its exit status."""
        with self._on_signals():
            try:
                await self._terminal.run(first)
            except EOFError:  # the terminal was closed
                self._is_signalled = self._tty.is_gone = True
            except Unavailable:
                if not self._is_signalled:
                    raise
            if self._is_signalled:
                await self._terminal.engine.drain()
                if self._tty.is_gone:
                    render.discard_output()
                return errors.INTERRUPTED
        await self._terminal.close_session()
        return errors.DONE

    @contextmanager
    def _on_signals(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGINT, self._terminal.interrupt)
        draining = [number for number in DRAINING if is_not_ignored(number)]
        for number in draining:
            loop.add_signal_handler(number, self._handle, number)
        try:
            yield
        finally:
            for number in (signal.SIGINT, *draining):
                loop.remove_signal_handler(number)

    def _handle(self, number: int) -> None:
        if self._is_signalled:
            self._modes.restore()
            os._exit(errors.INTERRUPTED)
        self._is_signalled = True
        if number == signal.SIGHUP:
            self._tty.is_gone = True
        self._terminal.start(self._drain())

    async def _drain(self) -> None:
        if self._terminal.is_working():
            self._terminal.show("Shutting down; finishing the current step first.")
        await self._terminal.engine.drain()
        self._terminal.exit()
