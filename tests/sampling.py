"""The tier of this run, and how many of many similar cases it tries. CONTRIBUTING.md explains the tiers.

`make fast`, `make test` and `make soak` set HOLDFAST_TEST_TIER. `make soak N=200` also sets HOLDFAST_TEST_ROUNDS.
"""

import os
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")

TIERS = ("fast", "test", "soak")
TIER = os.environ.get("HOLDFAST_TEST_TIER", "test")
assert TIER in TIERS, f"HOLDFAST_TEST_TIER is {TIER!r}; it must be one of {', '.join(TIERS)}"
SOAK = TIER == "soak"
ROUNDS = int(os.environ.get("HOLDFAST_TEST_ROUNDS", "50")) if SOAK else 0
"""How many rounds a storm has in `make soak`; 0 in the other tiers, which use the minimum of each test."""
EVERY_WRITE = 16
"""`make test` kills or fails a process at every sixteenth write; the calls before and after are much alike."""
TURNS = max(1, ROUNDS // 50)
"""Turns of the writer, which is killed at each call."""
CUTS = max(2, ROUNDS // 10)
"""Power cuts of each kind."""
KILLS = max(8, ROUNDS)
"""Processes killed in a storm."""
SECONDS = max(4.0, min(60.0, ROUNDS * 0.3))
"""How long processes write to one file at the same time."""


def every_nth(cases: Sequence[T], n: int, *, first: int = 0) -> Sequence[T]:
    """Every nth case, beginning with the one at index `first`; all of them in `make soak`."""
    return cases if SOAK else cases[first % max(1, len(cases)) :: n]


def limit(minutes: float) -> float:
    """The time limit, in seconds, of a test that takes at most that many minutes in `make test`."""
    return minutes * 60 * (1 + ROUNDS / 10) + 4 * SECONDS
