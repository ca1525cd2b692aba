"""Starts the programs of this folder as real processes, hears what they say, and never leaves one behind."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from tests.crash.say import Line, heard

ROOT = Path(__file__).parents[2]
LIMIT_SECONDS = 60.0
"""How long any single thing may take before it counts as hung."""
POLL_SECONDS = 0.01


class Hung(AssertionError):
    """What was waited for did not come."""


def wait_until(
    true: Callable[[], bool], what: str, limit: float = LIMIT_SECONDS, *, every: float = POLL_SECONDS
) -> None:
    """For states of the machine that ring no bell."""
    end = time.monotonic() + limit
    while not true():
        if time.monotonic() > end:
            raise Hung(f"{what}: not within {limit:.0f} s")
        time.sleep(every)


class Process:
    """A process with its two outputs collected; leaving the `with` block kills it if it still lives."""

    def __init__(self, *command: str, stdin: int = subprocess.PIPE) -> None:
        self.command = command
        self._heard = threading.Condition()
        self._said: dict[str, str] = {"stdout": "", "stderr": ""}
        self._open = 2
        self._popen = subprocess.Popen(
            command,
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=ROOT,
            bufsize=0,
        )
        self._ears = [
            threading.Thread(target=self._hear, args=(name, getattr(self._popen, name)), daemon=True)
            for name in self._said
        ]
        for ear in self._ears:
            ear.start()

    def _hear(self, name: str, pipe: IO[bytes]) -> None:
        while chunk := os.read(pipe.fileno(), 65536):
            with self._heard:
                self._said[name] += chunk.decode("utf-8", "replace")
                self._heard.notify_all()
        with self._heard:
            self._open -= 1
            self._heard.notify_all()

    @property
    def pid(self) -> int:
        return self._popen.pid

    @property
    def words(self) -> str:
        return self._said["stdout"]

    @property
    def complaints(self) -> str:
        return self._said["stderr"]

    def lines(self) -> list[Line]:
        """All that was said so far, but for a line that is not complete."""
        with self._heard:
            return heard(self._said["stdout"])

    def wait_for_words(self, words: str, output: str = "stdout", *, times: int = 1) -> bool:
        """Whether the words were said so often before the process fell silent for ever."""

        def said() -> bool:
            return self._said[output].count(words) >= times

        with self._heard:
            if not self._heard.wait_for(lambda: said() or self._open == 0, LIMIT_SECONDS):
                raise Hung(f"{self.command}: neither ended nor said {words!r}; it said {self._said}")
            return said()

    def wait_for_line(self, **fields: object) -> Line:
        """The first line that has these fields."""

        def found() -> list[Line]:
            return [line for line in heard(self._said["stdout"]) if fields.items() <= line.items()]

        with self._heard:
            self._heard.wait_for(lambda: found() or self._open == 0, LIMIT_SECONDS)
            if not found():
                raise Hung(f"{self.command}: never said {fields}; it said {self._said}")
            return found()[0]

    def tell(self, text: str) -> None:
        assert self._popen.stdin is not None
        self._popen.stdin.write(text.encode() + b"\n")

    def signal(self, number: signal.Signals) -> None:
        self._popen.send_signal(number)

    def wait(self, limit: float = LIMIT_SECONDS) -> int:
        """Its exit code, once all it said has been heard."""
        try:
            code = self._popen.wait(limit)
        except subprocess.TimeoutExpired as e:
            raise Hung(f"{self.command} did not end within {limit:.0f} s; it said {self._said}") from e
        for ear in self._ears:
            ear.join(limit)
        return code

    def interrupt(self) -> None:
        """As with Ctrl-C; wait until it has ended."""
        self._popen.send_signal(signal.SIGINT)
        self.wait()

    def kill(self) -> None:
        """As a power user, an OOM killer or a supervisor does it."""
        self._popen.kill()
        self.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        if self._popen.poll() is None:
            self._popen.kill()
        self._popen.wait(LIMIT_SECONDS)
        for ear in self._ears:
            ear.join(LIMIT_SECONDS)
        for pipe in (self._popen.stdin, self._popen.stdout, self._popen.stderr):
            if pipe is not None:
                pipe.close()


class InTerminal(Process):
    """A process, or a shell that starts it, as the leader of a session with a terminal of its own."""

    def __init__(self, *command: str) -> None:
        self._ours, theirs = os.openpty()
        super().__init__("setsid", "--ctty", *command, stdin=theirs)
        os.close(theirs)

    def hang_up(self) -> None:
        """Close the terminal's window."""
        if self._ours >= 0:
            os.close(self._ours)
            self._ours = -1

    def __exit__(self, *of: type[BaseException] | BaseException | TracebackType | None) -> None:
        super().__exit__(*of)
        self.hang_up()


def command(name: str, *arguments: object) -> list[str]:
    """How to run a module of this folder by this interpreter."""
    return [sys.executable, "-m", f"tests.crash.{name}", *map(str, arguments)]


def program(name: str, *arguments: object) -> Process:
    return Process(*command(name, *arguments))
