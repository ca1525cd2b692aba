"""Runs one trial on stores that the given function opens, and prints the result as JSON."""

import asyncio
import json
import sys

import msgspec

from holdfast.clock import SystemClock
from holdfast.torture.scratch_store import scratch_stores
from holdfast.torture.torture import run_trial


def main(url: str, trial: str, rounds: str, opener: str) -> None:
    with scratch_stores(url) as stores:
        result = asyncio.run(run_trial(trial, stores, SystemClock(), seed=7, rounds=int(rounds), opener=opener))
    print(json.dumps({**msgspec.to_builtins(result), "ok": result.ok}))


if __name__ == "__main__":
    main(*sys.argv[1:])
