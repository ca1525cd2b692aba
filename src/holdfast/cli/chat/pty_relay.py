"""Runs a program of the user on a terminal of its own, shown on the user's terminal, and keeps what it wrote.

The program sees a terminal, so editors, pagers and colours work. Keys go to the program as they are; Ctrl-C reaches it
as a signal of its terminal. Ctrl-Z is a plain character there: nobody could continue the program.
"""

import asyncio
import contextlib
import fcntl
import os
import sys
import termios
import tty
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from holdfast.cli.chat.captured_output import CapturedOutput
from holdfast.model.errors import Invalid

TAKE_TERMINAL = 'terminal=$1; shift; exec "$@" <>"$terminal" >&0 2>&1'
"""The leader of a new session gets the terminal that it opens as its controlling terminal."""
CHUNK = 65_536
RESIZE_SECONDS = 0.5
DRAIN_SECONDS = 0.2
"""How long output of processes that the program left running is still shown."""


async def run_on_terminal(
    command: Sequence[str], workdir: Path, environment: Mapping[str, str]
) -> tuple[int, CapturedOutput]:
    """Run a program on the user's terminal; its exit status, negative for a signal, and its output."""
    ours, theirs = os.openpty()
    captured = CapturedOutput()
    try:
        _prepare(theirs)
        shell = ("/bin/sh", "-c", TAKE_TERMINAL, "sh", os.ttyname(theirs), *command)
        with _relaying(ours, captured) as (keys, drained):
            try:
                process = await asyncio.create_subprocess_exec(
                    *shell, cwd=workdir, env=dict(environment), start_new_session=True
                )
            except OSError as e:
                raise Invalid(f"cannot run a shell: {e.strerror}") from e
            status = await process.wait()
            keys.stop()  # what the user types now is for the chat
            os.close(theirs)  # open until now: without any opener the terminal would count as closed
            theirs = -1
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(DRAIN_SECONDS):
                    await drained.wait()
    finally:
        os.close(ours)
        if theirs >= 0:
            os.close(theirs)
    return status, captured


def _prepare(terminal: int) -> None:
    """The same size and modes as the user's terminal, without Ctrl-Z."""
    _copy_size(terminal)
    modes = termios.tcgetattr(sys.stdin)
    modes[6][termios.VSUSP] = os.fpathconf(terminal, "PC_VDISABLE").to_bytes(1, "little")
    termios.tcsetattr(terminal, termios.TCSANOW, modes)


def _copy_size(terminal: int) -> None:
    size = fcntl.ioctl(sys.stdin, termios.TIOCGWINSZ, b"\0" * 8)
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, size)


class _KeyRelay:
    """Passes keys to the program. While it does not read, no more keys are taken from the keyboard."""

    def __init__(self, keyboard: int, ours: int) -> None:
        self._loop = asyncio.get_running_loop()
        self._keyboard, self._ours = keyboard, ours
        self._pending = b""
        os.set_blocking(ours, False)

    def start(self) -> None:
        self._loop.add_reader(self._keyboard, self._press)

    def stop(self) -> None:
        self._loop.remove_reader(self._keyboard)
        self._loop.remove_writer(self._ours)

    def _press(self) -> None:
        try:
            self._pending = os.read(self._keyboard, CHUNK)
        except OSError:  # the user's terminal was closed
            self._pending = b""
        self._loop.remove_reader(self._keyboard)
        if self._pending:
            self._loop.add_writer(self._ours, self._flush)

    def _flush(self) -> None:
        with contextlib.suppress(BlockingIOError):
            self._pending = self._pending[os.write(self._ours, self._pending) :]
        if not self._pending:
            self._loop.remove_writer(self._ours)
            self.start()


class _ScreenRelay:
    """Shows what the program writes, and keeps it. `drained` is set once the program's terminal is closed."""

    def __init__(self, ours: int, screen: int, captured: CapturedOutput) -> None:
        self._loop = asyncio.get_running_loop()
        self._ours, self._screen, self._captured = ours, screen, captured
        self.drained = asyncio.Event()

    def start(self) -> None:
        self._loop.add_reader(self._ours, self._show)

    def stop(self) -> None:
        self._loop.remove_reader(self._ours)

    def _show(self) -> None:
        try:
            data = os.read(self._ours, CHUNK)
        except BlockingIOError:
            return
        except OSError:  # how Linux reports that the other end is closed
            data = b""
        if not data:
            self.stop()
            self.drained.set()
            return
        self._captured.feed(data)
        while data:
            data = data[os.write(self._screen, data) :]


@contextlib.contextmanager
def _relaying(ours: int, captured: CapturedOutput) -> Iterator[tuple["_KeyRelay", asyncio.Event]]:
    """Pass keys, output and the size on. The event is set when the program's terminal is closed."""
    keyboard = sys.stdin.fileno()
    keys, screen = _KeyRelay(keyboard, ours), _ScreenRelay(ours, sys.stdout.fileno(), captured)
    size = _SizeRelay(ours)
    before = termios.tcgetattr(keyboard)
    tty.setraw(keyboard, termios.TCSANOW)
    keys.start()
    screen.start()
    size.start()
    try:
        yield keys, screen.drained
    finally:
        size.stop()
        screen.stop()
        keys.stop()
        with contextlib.suppress(termios.error):  # the user's terminal was closed
            termios.tcsetattr(keyboard, termios.TCSADRAIN, before)


class _SizeRelay:
    """Copies the size of the user's terminal now and then: the signal for it belongs to the chat."""

    def __init__(self, ours: int) -> None:
        self._ours = ours
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        with contextlib.suppress(OSError):  # the user's terminal was closed
            _copy_size(self._ours)
        self._timer = asyncio.get_running_loop().call_later(RESIZE_SECONDS, self.start)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
