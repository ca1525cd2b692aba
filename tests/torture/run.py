"""A program that runs one trial on stores that a given function opens, and prints what came of it."""

import asyncio
import json
import sys

import msgspec

from holdfast.clock import SystemClock
from holdfast.torture.opening import scratch
from holdfast.torture.torture import attempt


def main(url: str, trial: str, rounds: str, opener: str) -> None:
    with scratch(url) as made:
        outcome = asyncio.run(attempt(trial, made, SystemClock(), seed=7, rounds=int(rounds), opener=opener))
    print(json.dumps({**msgspec.to_builtins(outcome), "ok": outcome.ok}))


if __name__ == "__main__":
    main(*sys.argv[1:])
