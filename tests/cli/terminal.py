"""A user at a terminal: starts the real program, types, and reads the screen and the scrollback."""

import fcntl
import os
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import pyte

ENVIRONMENT = {name: os.environ[name] for name in ("PATH", "PYTHONPATH") if name in os.environ}
LIMIT_SECONDS = 40.0
"""How long anything may take before it counts as hanging."""
CTRL_E, CTRL_R, CTRL_X = "\x05", "\x12", "\x18"
ENTER, CTRL_C, CTRL_D, ALT_ENTER, TAB, UP, DOWN, ESCAPE = (
    "\r",
    "\x03",
    "\x04",
    "\x1b\r",
    "\t",
    "\x1b[A",
    "\x1b[B",
    "\x1b",
)
PASTE = "\x1b[200~", "\x1b[201~"


class Terminal:
    """`holdfast` in its own terminal. The end of the `with` block kills it if it still runs."""

    def __init__(
        self,
        home: Path,
        *args: str,
        model: str = "scripted:echo",
        cwd: Path | None = None,
        columns: int = 80,
        rows: int = 30,
        env: dict[str, str] | None = None,
        program: Sequence[str] = (sys.executable, "-m", "holdfast"),
    ) -> None:
        self._screen = pyte.HistoryScreen(columns, rows, history=20_000, ratio=1)
        self._stream = pyte.ByteStream(self._screen)
        self.written = b""
        self._ours, theirs = os.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        environment = {"TERM": "xterm-256color", "LANG": "C.UTF-8", "HOLDFAST_MODEL": model}
        self._popen = subprocess.Popen(
            ["setsid", "--ctty", *program, "--home", str(home), *args],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            cwd=cwd or home.parent,
            env={**ENVIRONMENT, **environment, **(env or {})},
        )
        os.close(theirs)

    @property
    def pid(self) -> int:
        return self._popen.pid

    def press(self, text: str | bytes) -> None:
        """Press keys. A terminal accepts a limited amount at once, so its output is read in between."""
        data = text.encode("utf-8", "surrogateescape") if isinstance(text, str) else text
        os.set_blocking(self._ours, False)
        while data:
            self._read(0)
            try:
                data = data[os.write(self._ours, data[:4096]) :]
            except BlockingIOError:
                self._read(0.05)
        os.set_blocking(self._ours, True)

    def say(self, text: str) -> None:
        self.press(text + ENTER)

    def paste(self, data: bytes) -> None:
        begin, end = (mark.encode() for mark in PASTE)
        self.press(begin + data + end)

    @property
    def text(self) -> str:
        """All text on the screen and in the scrollback."""
        width = range(self._screen.columns)
        above = ["".join(line[x].data for x in width).rstrip() for line in self._screen.history.top]
        return "\n".join([*above, *(line.rstrip() for line in self._screen.display)]).rstrip("\n")

    @property
    def flat(self) -> str:
        """The same on one line, so that it does not matter where lines were wrapped."""
        return " ".join(self.text.split())

    @property
    def last_line(self) -> str:
        return self.text.rsplit("\n", 1)[-1]

    def see(self, words: str, *, times: int = 1, limit: float = LIMIT_SECONDS) -> str:
        """Wait until the text occurs that often."""
        return self._until(lambda: self.flat.count(words) >= times, f"{words!r} {times} times", limit)

    def see_no(self, words: str, *, limit: float = LIMIT_SECONDS) -> str:
        """Wait until the text is gone."""
        return self._until(lambda: words not in self.flat, f"no {words!r}", limit)

    def match(self, pattern: str, *, limit: float = LIMIT_SECONDS) -> re.Match[str]:
        """Wait until something on the screen matches."""
        self._until(lambda: re.search(pattern, self.flat) is not None, f"something like {pattern}", limit)
        found = re.search(pattern, self.flat)
        assert found is not None
        return found

    def ready(self) -> Self:
        """Wait for the input line."""
        self._until(lambda: re.search(r"^❯", self.text, re.MULTILINE) is not None, "a prompt", LIMIT_SECONDS)
        return self

    def _until(self, true: Callable[[], bool], what: str, limit: float) -> str:
        end = time.monotonic() + limit
        while not true():
            is_open = self._read(0.1)
            if not true() and (not is_open or time.monotonic() > end):
                raise AssertionError(
                    f"never saw {what}; the terminal {'shows' if is_open else 'ended with'}:\n{self.text}"
                )
        return self.flat

    def _read(self, seconds: float) -> bool:
        """Read the output so far; False once the program has closed its end."""
        try:
            while select.select([self._ours], [], [], seconds)[0]:
                data = os.read(self._ours, 65536)
                self.written += data
                self._stream.feed(data)
                seconds = 0
        except OSError:  # how Linux reports that the other end is closed
            return False
        return True

    def signal(self, number: signal.Signals) -> None:
        self._popen.send_signal(number)

    def kill(self) -> None:
        self._popen.kill()
        self.wait()

    def hang_up(self) -> None:
        """Close the window, or lose the connection."""
        os.close(self._ours)
        self._ours = -1

    def wait(self) -> int:
        """Its exit status, once all it wrote has been read."""
        end = time.monotonic() + LIMIT_SECONDS
        while self._ours >= 0 and self._read(0.05) and self._popen.poll() is None:
            assert time.monotonic() < end, f"it did not end:\n{self.text}"
        status = self._popen.wait(LIMIT_SECONDS)
        if self._ours >= 0:
            self._read(0.05)  # what it wrote between the last read and its end
        return status

    def cancel(self) -> int:
        """Press Ctrl-C until the program ends; its exit status. Python's `input` loses a signal that arrives just before it waits."""
        for _ in range(int(LIMIT_SECONDS)):
            self.press(CTRL_C)
            end = time.monotonic() + 1
            while time.monotonic() < end:
                if not self._read(0.05) or self._popen.poll() is not None:
                    return self.wait()
        raise AssertionError(f"it did not end:\n{self.text}")

    @property
    def echoes(self) -> bool:
        """Whether the terminal has the modes that a shell needs."""
        return bool(termios.tcgetattr(self._ours)[3] & termios.ECHO)

    def leave(self) -> int:
        self.press(CTRL_D)
        return self.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        if self._popen.poll() is None:
            self._popen.kill()
        self._popen.wait(LIMIT_SECONDS)
        if self._ours >= 0:
            os.close(self._ours)
