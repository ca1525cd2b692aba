"""How much of the ring to run. `HOLDFAST_TEST_ROUNDS` asks for more than the default, which takes a few minutes."""

import os

ROUNDS = int(os.environ.get("HOLDFAST_TEST_ROUNDS", "0"))
TURNS = max(1, ROUNDS // 50)
"""Turns that are played and died in, at each call."""
CUTS = max(2, ROUNDS // 10)
"""Power cuts of each kind."""
KILLS = max(12, ROUNDS)
"""Processes killed in the storm."""
SECONDS = max(8.0, min(60.0, ROUNDS * 0.3))
"""How long processes hammer one file."""


def limit(minutes: float) -> float:
    """The time limit of a test that takes that many minutes at the very most with the default effort, in seconds."""
    return minutes * 60 * (1 + ROUNDS / 10) + 4 * SECONDS
