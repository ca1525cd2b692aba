"""Agents of the frameworks in processes of their own, killed at random points."""

import json
import os
import random
import re
import signal
import sys
import time
from typing import Self

from tests.crash.programs import Process
from tests.sampling import ROUNDS

KILLED = max(3, ROUNDS)
"""How many agents of each framework and store are killed."""
SPREAD_SECONDS = 0.05
"""Longer than a run of these agents takes, so that any point of one is hit."""


def start_agent(program: str, *arguments: object) -> Process:
    return Process(sys.executable, "-m", f"tests.adapters.programs.{program}", *map(str, arguments))


class AgentForks:
    """Runs one program again and again; see `programs/forks.py`."""

    def __init__(self, program: str) -> None:
        self._process = start_agent("forks", program)
        self._count = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.stdout.count("pid ") > self._process.stdout.count("ended\n"):
            os.kill(self._newest(), signal.SIGKILL)
        self._process.__exit__(None, None, None)

    def kill_one(self, *arguments: object) -> list[int]:
        """Start the program, kill it at a random point of a run after the first, and return the numbers that it acknowledged."""
        self.start(*arguments)
        return self.kill()

    def start(self, *arguments: object) -> None:
        self._process.send(json.dumps(arguments))

    def kill(self) -> list[int]:
        self._count += 1
        assert self._process.wait_for_output("pid ", times=self._count), self._process.stderr
        lines = self._process.stdout.rpartition("pid ")[0].count("\n") + 1
        assert self._process.wait_for_output("\n", times=lines + random.randrange(1, 6)), self._process.stderr
        time.sleep(random.random() * SPREAD_SECONDS)
        assert self._process.stdout.count("ended\n") < self._count, self._process.stderr
        os.kill(self._newest(), signal.SIGKILL)
        assert self._process.wait_for_output("ended\n", times=self._count), self._process.stderr
        printed = self._process.stdout.rpartition("pid ")[2]
        return [int(number) for number in re.findall(r"^(\d+)\n", printed.partition("\n")[2], re.MULTILINE)]

    def _newest(self) -> int:
        return int(re.findall(r"^pid (\d+)\n", self._process.stdout, re.MULTILINE)[-1])
