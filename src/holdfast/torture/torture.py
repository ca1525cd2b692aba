"""The list of trials, and how one runs on its own scratch store."""

import random

from holdfast.model.errors import HoldfastError
from holdfast.model.times import Clock
from holdfast.torture.result import Trial, TrialContext, TrialResult
from holdfast.torture.scratch_store import DEFAULT_OPENER, ScratchStores
from holdfast.torture.subprocesses import LIMIT_SECONDS, ProgramFailed
from holdfast.torture.trials.clock_jumps import clock_jumps
from holdfast.torture.trials.crash_at_commit import crash_at_commit
from holdfast.torture.trials.disk_full import disk_full
from holdfast.torture.trials.kill_storm import kill_storm
from holdfast.torture.trials.redelivery import redelivery
from holdfast.torture.trials.stale_writer import stale_writer

TRIALS: dict[str, Trial] = {
    "kill at every commit": crash_at_commit,
    "storm of kills": kill_storm,
    "two writers": stale_writer,
    "redelivery": redelivery,
    "disk full": disk_full,
    "clock jumps": clock_jumps,
}
ROUNDS = 20


async def run_trial(
    name: str, stores: ScratchStores, clock: Clock, *, seed: int, rounds: int = ROUNDS, opener: str = DEFAULT_OPENER
) -> TrialResult:
    """Run a trial. The seed determines its random choices, but not the timing of the machine."""
    result = TrialResult(name)
    url, folder = stores.new(name.replace(" ", "-"))
    trial = TrialContext(url, opener, folder, random.Random(f"{seed} {name}"), rounds)
    since = clock.monotonic()
    try:
        await TRIALS[name](trial, result)
    except TimeoutError:
        result.broken = f"one step took longer than {LIMIT_SECONDS:.0f} s"
    except (HoldfastError, ProgramFailed, AssertionError, OSError) as e:
        result.broken = f"{type(e).__name__}: {e}"
    result.seconds = clock.monotonic() - since
    return result
