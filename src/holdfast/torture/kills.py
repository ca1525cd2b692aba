"""A turn is killed before, inside and after each of its commits, one process after another, and taken up each time."""

import asyncio
import signal

from holdfast.store.database import Database
from holdfast.torture import proof
from holdfast.torture.dying import WHENS, When
from holdfast.torture.outcome import Outcome, Stage
from holdfast.torture.proof import Head
from holdfast.torture.scene import on_stage
from holdfast.torture.start import started

MOST = 60
"""Commits that a turn cannot possibly have."""


async def kill_at_every_commit(stage: Stage, outcome: Outcome) -> None:
    database = await stage.open(stage.url)
    try:
        left = list(WHENS)
        for nth in range(1, MOST):
            results = await asyncio.gather(*(_play(stage, nth, when) for when in left))
            acknowledged = [head for heads, _ in results for head in heads]
            outcome.count("kills", sum(not survived for _, survived in results))
            await _check(stage, database, acknowledged, outcome)
            left = [when for when, (_, survived) in zip(left, results, strict=True) if not survived]
            if not left:
                return
        raise AssertionError("a turn never came to its last commit")
    finally:
        await database.close()


async def _play(stage: Stage, nth: int, when: When) -> tuple[list[Head], bool]:
    """What was acknowledged until the program died, and whether it did not."""
    async with started("player", stage.given(nth=nth, when=when)) as child:
        code = await child.end()
        survived = any("survived" in line for line in child.lines)
        if code != -signal.SIGKILL and not survived:
            await child.end_well()
        return [tuple(head) for line in child.lines for head in line.get("heads", ())], survived


async def _check(stage: Stage, database: Database, acknowledged: list[Head], outcome: Outcome) -> None:
    """See to what the dead have left, as the next worker does, and look at all of it."""
    async with on_stage(database, stage.folder) as scene:
        await scene.see_to_everything()
        found = await proof.logs(database, outcome)
        proof.heads_are_there(found, acknowledged, outcome)
        marks = proof.marks_left(stage.folder)
        for session_id, entries in found.items():
            proof.turns_are_whole(session_id, entries, marks[session_id], outcome)
        await proof.nothing_is_leaked(database, outcome, [scene.engine.ground.worker_id])
