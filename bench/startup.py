"""The CPU time it takes to start the commands, as the kernel counted it."""

import os
import select
import signal
import sys
from collections.abc import Callable
from pathlib import Path

from bench.figures import Figure, Goal

TRIES = 7
PROMPT = "❯".encode()
ADDRESS = b"http://127.0.0.1:"
LIMIT_SECONDS = 30


def measure(folder: Path) -> list[Figure]:
    holdfast = str(Path(sys.executable).with_name("holdfast"))
    bare = _lowest([_cpu_millis([sys.executable, "-c", "pass"], folder) for _ in range(TRIES)])
    beside = "" if bare is None else f" (python -c pass: {bare:,.0f} ms)"
    return [
        _figure("holdfast --version", lambda: _cpu_millis([holdfast, "--version"], folder), Goal("≤", 40, " ms")),
        _figure(
            "holdfast sessions list", lambda: _cpu_millis([holdfast, "sessions", "list"], folder), Goal("≤", 120, " ms")
        ),
        _figure("chat prompt ready", lambda: _until(PROMPT, [holdfast], folder), Goal("≤", 200, " ms"), beside),
        _figure(
            "serve ready", lambda: _until(ADDRESS, [holdfast, "serve", "--port", "0"], folder), Goal("≤", 400, " ms")
        ),
    ]


def _figure(what: str, start: Callable[[], float | None], goal: Goal, beside: str = "") -> Figure:
    # The first start compiles the modules, once for ever, and is not counted.
    cost = _lowest([start() for _ in range(TRIES + 1)][1:])
    if cost is None:
        return Figure(what=what, value="not built yet: it does not run", goal=goal)
    return Figure(what=what, value=f"{cost:,.0f} ms of CPU{beside}", judged=cost, goal=goal, kind="cpu")


def _lowest(tries: list[float | None]) -> float | None:
    good = [millis for millis in tries if millis is not None]
    return min(good) if len(good) == len(tries) else None


def _environment(folder: Path) -> dict[str, str]:
    return {
        **os.environ,
        "HOLDFAST_HOME": str(folder / "home"),
        "PYTHONDONTWRITEBYTECODE": "",
        "TERM": "xterm-256color",
    }


def _until(sign: bytes, command: list[str], folder: Path) -> float | None:
    """User and system time until a command in a terminal has written this; None if it never does."""
    ours, theirs = os.openpty()
    actions = [(os.POSIX_SPAWN_DUP2, theirs, fd) for fd in (0, 1, 2)]
    pid = os.posix_spawn(command[0], command, _environment(folder), file_actions=actions)
    os.close(theirs)
    written = b""
    while sign not in written and select.select([ours], [], [], LIMIT_SECONDS)[0]:
        try:
            written += os.read(ours, 65536)
        except OSError:  # it has ended
            break
    os.kill(pid, signal.SIGKILL)
    _, _, used = os.wait4(pid, 0)
    os.close(ours)
    return (used.ru_utime + used.ru_stime) * 1e3 if sign in written else None


def _cpu_millis(command: list[str], folder: Path) -> float | None:
    """User and system time of one start; None if it failed."""
    silence = [(os.POSIX_SPAWN_OPEN, fd, os.devnull, os.O_RDWR, 0) for fd in (0, 1, 2)]
    try:
        pid = os.posix_spawn(command[0], command, _environment(folder), file_actions=silence)
    except FileNotFoundError:
        return None
    _, status, used = os.wait4(pid, 0)
    return (used.ru_utime + used.ru_stime) * 1e3 if status == 0 else None
