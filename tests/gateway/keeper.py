"""Keeps a gateway process running, and has it die again and again at chosen places."""

import asyncio
import os
import random
import signal
import sys
from collections.abc import Iterable
from pathlib import Path

from tests.crash.effort import ROUNDS
from tests.gateway.program import POINTS

ROOT = Path(__file__).resolve().parents[2]
MESSAGES = max(40, min(ROUNDS, 1000))
"""How many messages a storm has; HOLDFAST_TEST_ROUNDS asks for more."""
TIMES = 1 if MESSAGES < 200 else 3
"""How often the agent dies at each point."""


def deaths(seed: int) -> list[str]:
    """Each point, soon and later after a start, in an order of chance."""
    chance = random.Random(seed)
    found = [f"{point}:{chance.choice((1, 2, 3, 5, 8))}" for point in POINTS for _ in range(TIMES)]
    chance.shuffle(found)
    return found


class Keeper:
    """Starts the program with one death after another; once they are used up, it lives."""

    def __init__(self, home: Path, deaths: Iterable[str]) -> None:
        self._home = home
        self._deaths = list(deaths)
        self.died: list[str] = []
        self._task: asyncio.Task[None] | None = None
        self._process: asyncio.subprocess.Process | None = None

    async def __aenter__(self) -> "Keeper":
        self._task = asyncio.create_task(self._keep())
        return self

    async def __aexit__(self, *error: object) -> None:
        assert self._task is not None
        self._task.cancel()
        await asyncio.wait({self._task})
        if self._process is not None and self._process.returncode is None:
            self._process.terminate()
            await self._process.wait()

    async def _keep(self) -> None:
        while True:
            death = self._deaths[0] if self._deaths else ""
            await self._start(death)
            assert self._process is not None
            code = await self._process.wait()
            assert code == -signal.SIGKILL, f"it left with {code}: {self.log()}"
            self.died.append(self._deaths.pop(0))

    async def _start(self, death: str) -> None:
        with (self._home / "stderr").open("ab") as errors:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "tests.gateway.program",
                str(self._home),
                death,
                stdout=asyncio.subprocess.DEVNULL,
                stderr=errors,
                cwd=ROOT,
                env={**os.environ, "HOLDFAST_HOME": str(self._home)},
            )

    def check(self) -> None:
        """Raises what went wrong with the program, if something did."""
        assert self._task is not None
        if self._task.done():
            self._task.result()

    @property
    def is_calm(self) -> bool:
        """Whether all deaths have been died."""
        return not self._deaths

    def log(self) -> str:
        return (self._home / "stderr").read_text()[-3000:]
