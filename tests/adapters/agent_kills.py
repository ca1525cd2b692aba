"""Agents of the frameworks in processes of their own, killed at random points."""

import random
import re
import sys
import time

from tests.crash.programs import Process
from tests.sampling import ROUNDS

KILLED = max(2, ROUNDS)
"""How many agents of each framework and store are killed."""
SPREAD_SECONDS = 0.05
"""Longer than a run of these agents takes, so that any point of one is hit."""


def killed_agent(program: str, *arguments: object) -> list[int]:
    """Start the program, kill it at a random point of a run after the first, and return the numbers that it acknowledged."""
    with start_agent(program, *arguments) as agent:
        kill_at_random(agent)
    return acknowledged_by(agent)


def start_agent(program: str, *arguments: object) -> Process:
    return Process(sys.executable, "-m", f"tests.adapters.programs.{program}", *map(str, arguments))


def kill_at_random(agent: Process) -> None:
    assert agent.wait_for_output("\n", times=random.randrange(1, 6)), agent.stderr
    time.sleep(random.random() * SPREAD_SECONDS)
    agent.kill()


def acknowledged_by(agent: Process) -> list[int]:
    return [int(number) for number in re.findall(r"^(\d+)\n", agent.stdout, re.MULTILINE)]
