"""Runs the trials one after another, each on a store of its own, and tells what came of them."""

import random
from collections.abc import AsyncIterator

from holdfast.model.errors import HoldfastError
from holdfast.model.times import Clock
from holdfast.torture.clocks import clock_jumps
from holdfast.torture.fulldisk import full_disk
from holdfast.torture.kills import kill_at_every_commit
from holdfast.torture.opening import DEFAULT, Scratch
from holdfast.torture.outcome import Outcome, Stage, Trial
from holdfast.torture.redelivery import redelivery
from holdfast.torture.start import Failed
from holdfast.torture.storm import storm
from holdfast.torture.writers import two_writers

TRIALS: dict[str, Trial] = {
    "kill at every commit": kill_at_every_commit,
    "storm of kills": storm,
    "two writers": two_writers,
    "redelivery": redelivery,
    "disk full": full_disk,
    "clock jumps": clock_jumps,
}
ROUNDS = 20


async def torture(
    scratch: Scratch, clock: Clock, *, seed: int, rounds: int = ROUNDS, opener: str = DEFAULT, only: str | None = None
) -> AsyncIterator[Outcome]:
    """The outcome of each trial. The seed decides what is chosen in it; how fast the machine is it cannot decide."""
    for number, (name, trial) in enumerate(TRIALS.items()):
        if only not in (None, name):
            continue
        outcome = Outcome(name)
        url, folder = scratch.new(str(number))
        stage = Stage(url, opener, folder, random.Random(f"{seed} {name}"), rounds)
        since = clock.monotonic()
        try:
            await trial(stage, outcome)
        except TimeoutError:
            outcome.broken = "something hung"
        except (HoldfastError, Failed, AssertionError, OSError) as e:
            outcome.broken = f"{type(e).__name__}: {e}"
        outcome.seconds = clock.monotonic() - since
        yield outcome
