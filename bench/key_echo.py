"""How long a key takes from the keyboard to the screen of the chat, while a reply streams."""

import fcntl
import json
import os
import select
import signal
import statistics
import struct
import sys
import termios
import time
from pathlib import Path
from typing import NamedTuple

from bench.figures import Figure, Goal, Kind, millis

KEYS = [chr(code) for code in range(0xC0, 0x180) if chr(code).isalpha()]
"""Letters that the reply does not contain. Each is typed once per line, so its echo cannot be an older one."""
LINE = 40
"""Keys before the input line is cleared."""
CLEAR_LINE = b"\x15"
INTERVAL_SECONDS = 0.05
LIMIT_SECONDS = 30.0
LIMIT = Goal("≤", 16, " ms")
"""A frame of a screen with 60 Hz."""
WORDS = "The quick **brown** fox jumps over `the` lazy dog and then writes about it. "
REPLY = "\n\n".join([WORDS * 4, *(f"- item {number}: {WORDS}" for number in range(20)), f"```python\n{WORDS * 3}\n```"])
PACE_SECONDS = 0.01
"""Between two words of the reply."""


class Echo(NamedTuple):
    """From a key to its echo: the time, and the CPU time of the thread that draws, to which a busy machine adds little."""

    seconds: float
    cpu_seconds: float


def measure(folder: Path, *, keys: int) -> list[Figure]:
    with StreamingChat(folder) as chat:
        idle = [chat.echo(number).seconds for number in range(keys // 5)]
        chat.stream()
        busy = [chat.echo(number) for number in range(keys)]
    times, costs = [echo.seconds for echo in busy], [echo.cpu_seconds for echo in busy]
    return [
        _figure("time of a key while a reply streams, p99", _p99(times), goal=LIMIT),
        _figure("CPU of a key while a reply streams, p99", _p99(costs), goal=LIMIT, kind="cpu"),
        _figure("time of a key while a reply streams, p50", statistics.median(times)),
        _figure("time of a key in an idle chat, p50", statistics.median(idle)),
    ]


def _figure(what: str, seconds: float, *, goal: Goal | None = None, kind: Kind = "other") -> Figure:
    return Figure(what=what, value=millis(seconds), judged=seconds * 1000 if goal else None, goal=goal, kind=kind)


def _p99(times: list[float]) -> float:
    return sorted(times)[int(len(times) * 0.99)]


class StreamingChat:
    """A chat in a terminal of 100 by 40, whose model talks without end."""

    def __init__(self, folder: Path) -> None:
        script = folder / "talk.json"
        script.write_text(json.dumps({"steps": [{"say": REPLY * 20, "delay_seconds": PACE_SECONDS}], "loop": True}))
        self._ours, theirs = os.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 100, 0, 0))
        command = [str(Path(sys.executable).with_name("holdfast")), "chat", "--model", f"scripted:{script}"]
        environment = {**os.environ, "HOLDFAST_HOME": str(folder / "home"), "TERM": "xterm-256color"}
        actions = [(os.POSIX_SPAWN_DUP2, theirs, fd) for fd in (0, 1, 2)]
        self._pid = os.posix_spawn(command[0], command, environment, file_actions=actions)
        os.close(theirs)
        self._wait_for("❯".encode())

    def __enter__(self) -> "StreamingChat":
        return self

    def __exit__(self, *_: object) -> None:
        os.kill(self._pid, signal.SIGKILL)
        os.waitpid(self._pid, 0)
        os.close(self._ours)

    def stream(self) -> None:
        """Clear the line and ask for the reply."""
        os.write(self._ours, CLEAR_LINE + b"talk\r")
        self._wait_for(b"fox")

    def echo(self, number: int) -> Echo:
        """Press a key, and wait until it is shown. The pause before it is not counted."""
        self._read(INTERVAL_SECONDS)
        if number % LINE == 0:
            os.write(self._ours, CLEAR_LINE)
            self._read(INTERVAL_SECONDS)
        key = KEYS[number % len(KEYS)].encode()
        start, cpu = time.perf_counter(), self._cpu_seconds()
        os.write(self._ours, key)
        self._wait_for(key)
        return Echo(time.perf_counter() - start, self._cpu_seconds() - cpu)

    def _cpu_seconds(self) -> float:
        """The CPU time of the main thread."""
        return int(Path(f"/proc/{self._pid}/task/{self._pid}/schedstat").read_text("ascii").split()[0]) / 1e9

    def _read(self, seconds: float) -> None:
        """Read the output for that long."""
        end = time.perf_counter() + seconds
        while (left := end - time.perf_counter()) > 0:
            if select.select([self._ours], [], [], left)[0]:
                os.read(self._ours, 65536)

    def _wait_for(self, sign: bytes) -> None:
        seen, end = b"", time.perf_counter() + LIMIT_SECONDS
        while sign not in seen:
            if not select.select([self._ours], [], [], max(0.0, end - time.perf_counter()))[0]:
                raise RuntimeError(f"the chat did not show {sign!r} within {LIMIT_SECONDS:.0f} s")
            seen += os.read(self._ours, 65536)
