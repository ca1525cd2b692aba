"""`python -m bench.profile`: a flame graph of `holdfast serve` under load, in build/profile.svg.

py-spy samples the process from outside, so the server runs unchanged. It is installed in its own environment. By default
it samples the thread that runs Python code: that is what limits one worker.
"""

import argparse
import asyncio
import shutil
import signal
import tempfile
import time
from pathlib import Path

from bench import systems
from bench.load_driver import Endpoint, drive
from bench.model_server import WORDS
from bench.peers.environments import installed
from bench.processes import stop

SAMPLES_PER_SECOND = 200
ROUND_TURNS = 100


def positive(word: str) -> int:
    """A number of at least 1. argparse reports the name of this function."""
    if int(word) < 1:
        raise ValueError("not positive")
    return int(word)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.profile", description=__doc__)
    parser.add_argument("--output", type=Path, default=Path("build/profile.svg"))
    parser.add_argument("--seconds", type=positive, default=20)
    parser.add_argument("--sessions", type=positive, default=8)
    parser.add_argument("--per-second", type=float, default=0.0, help="words a second of the model; 0: all at once")
    parser.add_argument("--words", type=positive, default=WORDS, help="words in a reply")
    parser.add_argument("--all-threads", action="store_true", help="also sample threads that wait or run SQLite")
    parser.add_argument("--native", action="store_true", help="also show the frames of compiled extensions")
    options = parser.parse_args()
    # A terminated run ends its servers and removes its folder, as an interrupted one does.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    options.output.parent.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="profile-", dir=options.output.parent)).absolute()
    try:
        turns = asyncio.run(_profile(folder, options))
    finally:
        shutil.rmtree(folder)
    print(f"{turns} turns sampled; open {options.output} in a browser")


async def _profile(folder: Path, options: argparse.Namespace) -> int:
    """Sample the server while turns are played; return how many."""
    profiler = installed("py-spy").with_name("py-spy")
    async with (
        systems.model(words=options.words, per_second=options.per_second) as model,
        systems.holdfast(folder / "home", model.endpoint.port) as ours,
    ):
        drive(ours.endpoint, "warm-up", sessions=options.sessions, turns=1)
        record = ["record", "--pid", str(ours.process.pid), "--output", str(options.output), "--format", "flamegraph"]
        record += ["--duration", str(options.seconds), "--rate", str(SAMPLES_PER_SECOND), "--threads"]
        record += ["--native"] if options.native else []
        record += [] if options.all_threads else ["--gil"]
        process = await asyncio.create_subprocess_exec(profiler, *record)
        try:
            turns = await asyncio.to_thread(_play, ours.endpoint, options.sessions, options.seconds)
            if await process.wait():
                raise RuntimeError("py-spy failed; its message is above")
        finally:
            await stop(process)
        return turns


def _play(endpoint: Endpoint, sessions: int, seconds: float) -> int:
    """Play turns for so long; return how many."""
    end, turns = time.perf_counter() + seconds, 0
    while time.perf_counter() < end:
        each = max(1, ROUND_TURNS // sessions)
        turns += len(drive(endpoint, f"profile-{turns}", sessions=sessions, turns=each).turns)
    return turns


if __name__ == "__main__":
    main()
