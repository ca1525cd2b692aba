"""Kills a turn before, inside and after each of its commits; each time another worker continues it."""

import signal

from holdfast.store.database import Database
from holdfast.tasks import run_all
from holdfast.torture import invariants
from holdfast.torture.crashing_database import CRASH_POINTS, CrashPoint
from holdfast.torture.fixture import running_worker
from holdfast.torture.invariants import Head
from holdfast.torture.programs import turn_player
from holdfast.torture.result import TrialContext, TrialResult
from holdfast.torture.subprocesses import start_program

MAX_COMMITS = 60
"""More commits than a turn has."""


async def crash_at_commit(trial: TrialContext, result: TrialResult) -> None:
    database = await trial.open(trial.url)
    try:
        points = list(CRASH_POINTS)
        for nth in range(1, MAX_COMMITS):
            runs = await run_all(*(_run(trial, nth, point) for point in points))
            acknowledged = [head for heads, _ in runs for head in heads]
            result.count("kills", sum(not survived for _, survived in runs))
            await _check(trial, database, acknowledged, result)
            points = [point for point, (_, survived) in zip(points, runs, strict=True) if not survived]
            if not points:
                return
        raise AssertionError(f"the turn had more than {MAX_COMMITS} commits")
    finally:
        await database.close()


async def _run(trial: TrialContext, nth: int, point: CrashPoint) -> tuple[list[Head], bool]:
    """Run a turn. Return the acknowledged heads, and whether the program survived (it has fewer than `nth` commits)."""
    async with start_program(turn_player, trial.parameters(nth=nth, point=point)) as child:
        code = await child.wait()
        survived = any("survived" in line for line in child.lines)
        if code != -signal.SIGKILL and not survived:
            await child.wait_for_success()
        return [tuple(head) for line in child.lines for head in line.get("heads", ())], survived


async def _check(trial: TrialContext, database: Database, acknowledged: list[Head], result: TrialResult) -> None:
    """Continue the sessions of the killed programs, as the next worker does, and check all logs."""
    async with running_worker(database, trial.folder) as worker:
        await worker.recover()
        logs = await invariants.read_verified_logs(database, result)
        invariants.check_heads(logs, acknowledged, result)
        marks = invariants.count_marks(trial.folder)
        for session_id, entries in logs.items():
            invariants.check_turns(session_id, entries, marks[session_id], result)
        await invariants.check_leaks(database, result, [worker.id])
