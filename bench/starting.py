"""The processor time it takes to start the command, as the kernel counted it."""

import os
import statistics
import sys
from pathlib import Path

from bench.figures import Figure, Goal

TRIES = 7


def measure(folder: Path) -> list[Figure]:
    return [
        _figure(["--version"], folder, Goal("≤", 80, " ms")),
        _figure(["sessions", "list"], folder, Goal("≤", 200, " ms")),
    ]


def _figure(arguments: list[str], folder: Path, goal: Goal) -> Figure:
    what = " ".join(["holdfast", *arguments])
    # The first start compiles the modules, once for ever, and is not counted.
    tries = [_cpu_millis(arguments, folder) for _ in range(TRIES + 1)][1:]
    good = [millis for millis in tries if millis is not None]
    if len(good) < TRIES:
        return Figure(what=what, value="not built yet: it does not run", goal=goal)
    cost = statistics.median(good)
    return Figure(what=what, value=f"{cost:,.0f} ms of CPU", judged=cost, goal=goal)


def _cpu_millis(arguments: list[str], folder: Path) -> float | None:
    """User and system time of one start; None if it failed."""
    command = str(Path(sys.executable).with_name("holdfast"))
    environment = {**os.environ, "HOLDFAST_HOME": str(folder / "home"), "PYTHONDONTWRITEBYTECODE": ""}
    silence = [(os.POSIX_SPAWN_OPEN, fd, os.devnull, os.O_RDWR, 0) for fd in (0, 1, 2)]
    try:
        pid = os.posix_spawn(command, [command, *arguments], environment, file_actions=silence)
    except FileNotFoundError:
        return None
    _, status, used = os.wait4(pid, 0)
    return (used.ru_utime + used.ru_stime) * 1e3 if status == 0 else None
