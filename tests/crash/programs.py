"""Starts the programs of this folder as real processes, collects their output, and always ends them."""

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

from tests.crash.output import Line, parse_lines

ROOT = Path(__file__).parents[2]
LIMIT_SECONDS = 60.0
"""How long one step may take before the test fails."""
POLL_SECONDS = 0.01


class Hung(AssertionError):
    """The expected state did not occur in time."""


def wait_until(
    true: Callable[[], bool], what: str, limit: float = LIMIT_SECONDS, *, every: float = POLL_SECONDS
) -> None:
    """Poll for a state that sends no notification."""
    end = time.monotonic() + limit
    while not true():
        if time.monotonic() > end:
            raise Hung(f"{what}: not within {limit:.0f} s")
        time.sleep(every)


class Process:
    """A process whose two outputs are collected. The end of the `with` block kills it if it still runs."""

    def __init__(self, *command: str, stdin: int = subprocess.PIPE) -> None:
        self.command = command
        self._changed = threading.Condition()
        self._output: dict[str, str] = {"stdout": "", "stderr": ""}
        self._open = 2
        self._popen = subprocess.Popen(
            command,
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=ROOT,
            bufsize=0,
        )
        self._readers = [
            threading.Thread(target=self._read, args=(name, getattr(self._popen, name)), daemon=True)
            for name in self._output
        ]
        for reader in self._readers:
            reader.start()

    def _read(self, name: str, pipe: IO[bytes]) -> None:
        while chunk := os.read(pipe.fileno(), 65536):
            with self._changed:
                self._output[name] += chunk.decode("utf-8", "replace")
                self._changed.notify_all()
        with self._changed:
            self._open -= 1
            self._changed.notify_all()

    @property
    def pid(self) -> int:
        return self._popen.pid

    @property
    def has_ended(self) -> bool:
        return self._popen.poll() is not None

    @property
    def stdout(self) -> str:
        return self._output["stdout"]

    @property
    def stderr(self) -> str:
        return self._output["stderr"]

    def lines(self) -> list[Line]:
        """Every complete line of its output so far."""
        with self._changed:
            return parse_lines(self._output["stdout"])

    def wait_for_output(self, text: str, output: str = "stdout", *, times: int = 1) -> bool:
        """Wait until the text occurs that often, or both outputs are closed. Return whether it does."""

        def found() -> bool:
            return self._output[output].count(text) >= times

        with self._changed:
            if not self._changed.wait_for(lambda: found() or self._open == 0, LIMIT_SECONDS):
                raise Hung(f"{self.command}: neither ended nor wrote {text!r}; it wrote {self._output}")
            return found()

    def wait_for_line(self, **fields: object) -> Line:
        """Wait for the first line with these fields."""

        def found() -> list[Line]:
            return [line for line in parse_lines(self._output["stdout"]) if fields.items() <= line.items()]

        with self._changed:
            self._changed.wait_for(lambda: found() or self._open == 0, LIMIT_SECONDS)
            if not found():
                raise Hung(f"{self.command}: never wrote {fields}; it wrote {self._output}")
            return found()[0]

    def send(self, text: str) -> None:
        assert self._popen.stdin is not None
        self._popen.stdin.write(text.encode() + b"\n")

    def signal(self, number: signal.Signals) -> None:
        self._popen.send_signal(number)

    def wait(self, limit: float = LIMIT_SECONDS) -> int:
        """Wait for its end and all its output; return the exit code."""
        try:
            code = self._popen.wait(limit)
        except subprocess.TimeoutExpired as e:
            raise Hung(f"{self.command} did not end within {limit:.0f} s; it wrote {self._output}") from e
        for reader in self._readers:
            reader.join(limit)
        return code

    def interrupt(self) -> None:
        """Send SIGINT and wait for its end."""
        self._popen.send_signal(signal.SIGINT)
        self.wait()

    def kill(self) -> None:
        """Send SIGKILL and wait for its end."""
        self._popen.kill()
        self.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        if self._popen.poll() is None:
            self._popen.kill()
        self._popen.wait(LIMIT_SECONDS)
        for reader in self._readers:
            reader.join(LIMIT_SECONDS)
        for pipe in (self._popen.stdin, self._popen.stdout, self._popen.stderr):
            if pipe is not None:
                pipe.close()


class InTerminal(Process):
    """A process, or a shell that starts it, as the leader of a session with its own terminal."""

    def __init__(self, *command: str) -> None:
        self._ours, theirs = os.openpty()
        super().__init__("setsid", "--ctty", *command, stdin=theirs)
        os.close(theirs)

    def hang_up(self) -> None:
        """Close the terminal."""
        if self._ours >= 0:
            os.close(self._ours)
            self._ours = -1

    def __exit__(self, *of: type[BaseException] | BaseException | TracebackType | None) -> None:
        super().__exit__(*of)
        self.hang_up()


def command(name: str, *arguments: object) -> list[str]:
    """The command that runs a module of this folder with this interpreter."""
    return [sys.executable, "-m", f"tests.crash.{name}", *map(str, arguments)]


def program(name: str, *arguments: object) -> Process:
    return Process(*command(name, *arguments))
