"""Restarts a gateway process that kills itself again and again at chosen points."""

import asyncio
import os
import random
import signal
import sys
from collections.abc import Iterable
from pathlib import Path

from tests.gateway.crashing_gateway import POINTS
from tests.sampling import ROUNDS, SOAK

ROOT = Path(__file__).resolve().parents[2]
MESSAGES = min(max(40, ROUNDS), 1000) if SOAK else 20
"""The number of messages of a storm; more in `make soak`."""
TIMES = 1 if MESSAGES < 200 else 3
"""How often the process dies at each point."""


def choose_crash_points(seed: int) -> list[str]:
    """Each point, at different counts after a start, in random order."""
    chance = random.Random(seed)
    found = [f"{point}:{chance.choice((1, 2, 3, 5, 8))}" for point in POINTS for _ in range(TIMES)]
    chance.shuffle(found)
    return found


class CrashLoop:
    """Starts the program with each crash point in turn; after the last one, the program keeps running."""

    def __init__(self, home: Path, crash_points: Iterable[str]) -> None:
        self._home = home
        self._points = list(crash_points)
        self.crashed: list[str] = []
        self._task: asyncio.Task[None] | None = None
        self._process: asyncio.subprocess.Process | None = None

    async def __aenter__(self) -> "CrashLoop":
        self._task = asyncio.create_task(self._restart())
        return self

    async def __aexit__(self, *error: object) -> None:
        assert self._task is not None
        self._task.cancel()
        await asyncio.wait({self._task})
        if self._process is not None and self._process.returncode is None:
            self._process.terminate()
            await self._process.wait()

    async def _restart(self) -> None:
        while True:
            point = self._points[0] if self._points else ""
            await self._start(point)
            assert self._process is not None
            code = await self._process.wait()
            assert code == -signal.SIGKILL, f"it exited with {code}: {self.log()}"
            self.crashed.append(self._points.pop(0))

    async def _start(self, point: str) -> None:
        with (self._home / "stderr").open("ab") as errors:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "tests.gateway.crashing_gateway",
                str(self._home),
                point,
                stdout=asyncio.subprocess.DEVNULL,
                stderr=errors,
                cwd=ROOT,
                env={**os.environ, "HOLDFAST_HOME": str(self._home)},
            )

    def check(self) -> None:
        """Raise if the program ended unexpectedly."""
        assert self._task is not None
        if self._task.done():
            self._task.result()

    @property
    def is_finished(self) -> bool:
        """Whether every crash point was used."""
        return not self._points

    def log(self) -> str:
        return (self._home / "stderr").read_text()[-3000:]
