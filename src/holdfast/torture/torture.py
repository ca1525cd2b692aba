"""The trials there are, and how one of them is run on a store of its own."""

import random

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


async def attempt(
    name: str, scratch: Scratch, clock: Clock, *, seed: int, rounds: int = ROUNDS, opener: str = DEFAULT
) -> Outcome:
    """What comes of a trial. The seed decides what is chosen in it; how fast the machine is it cannot decide."""
    outcome = Outcome(name)
    url, folder = scratch.new(name.replace(" ", "-"))
    stage = Stage(url, opener, folder, random.Random(f"{seed} {name}"), rounds)
    since = clock.monotonic()
    try:
        await TRIALS[name](stage, outcome)
    except TimeoutError:
        outcome.broken = "something hung"
    except (HoldfastError, Failed, AssertionError, OSError) as e:
        outcome.broken = f"{type(e).__name__}: {e}"
    outcome.seconds = clock.monotonic() - since
    return outcome
