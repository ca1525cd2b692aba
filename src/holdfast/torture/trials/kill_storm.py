"""Processes write as fast as they can, to their own sessions and to shared ones, and are killed at any moment."""

import asyncio
from collections import Counter, defaultdict
from collections.abc import Sequence
from contextlib import AsyncExitStack

from holdfast.model.entry import Entry
from holdfast.model.ids import SESSION, derive
from holdfast.torture import invariants
from holdfast.torture.fixture import running_worker
from holdfast.torture.invariants import Head
from holdfast.torture.programs import writer
from holdfast.torture.result import TrialContext, TrialResult
from holdfast.torture.subprocesses import ChildProcess, Line, start_program

PROCESSES = 3
SHARED = 2
MAX_LIFE = 0.5
"""Seconds that a process may write before it is killed."""


async def kill_storm(trial: TrialContext, result: TrialResult) -> None:
    lines = [line for child in await run_storm(trial, result) for line in child.lines]
    result.count("messages", sum("written" in line for line in lines))
    database = await trial.open(trial.url)
    try:
        async with running_worker(database, trial.folder) as worker:
            await worker.recover()
            check_messages(await invariants.read_verified_logs(database, result), lines, result)
            await invariants.check_leaks(database, result, [worker.id])
    finally:
        await database.close()


async def run_storm(trial: TrialContext, result: TrialResult, processes: int = PROCESSES) -> list[ChildProcess]:
    """Kill and replace one writer in each round, then stop the others. Return all of them, ended."""
    shared = [derive(SESSION, trial.random.getrandbits(40), f"shared {number}") for number in range(SHARED)]
    started: list[ChildProcess] = []
    async with AsyncExitStack() as stack:

        async def start(dead: Sequence[Line] = ()) -> ChildProcess:
            parameters = trial.parameters(shared=shared, **_leases_of(dead))
            child = await stack.enter_async_context(start_program(writer, parameters))
            started.append(child)
            return child

        children = [await start() for _ in range(processes)]
        for _ in range(trial.rounds):
            victim = children.pop(trial.random.randrange(processes))
            await victim.wait_until(_has_written)
            await asyncio.sleep(trial.random.uniform(0, MAX_LIFE))
            result.count("kills", await victim.kill())
            children.append(await start(victim.lines))
        await stop_writers(children)
    return started


async def stop_writers(children: Sequence[ChildProcess]) -> None:
    """Stop each writer once it has written something. Raises ProgramFailed if one fails."""
    for child in children:
        await child.wait_until(_has_written)
        child.send("stop")
    for child in children:
        await child.wait_for_success()


def _has_written(lines: Sequence[Line]) -> bool:
    return any("written" in line for line in lines)


def _leases_of(dead: Sequence[Line]) -> dict[str, object]:
    """The worker to declare dead, and the last lease that it is known to have had of each session."""
    worker = next((line["worker"] for line in dead if "worker" in line), "")
    held = {line["held"][0]: line["held"] for line in dead if "held" in line}
    return {"dead": worker, "held": list(held.values())}


def check_messages(logs: dict[str, list[Entry]], lines: Sequence[Line], result: TrialResult) -> None:
    """Check that every acknowledged message is present once and in order, and that no dead worker wrote."""
    heads: list[Head] = [tuple(line["head"]) for line in lines if "head" in line]
    invariants.check_heads(logs, heads, result)
    acknowledged: dict[str, list[str]] = defaultdict(list)
    for line in lines:
        if "written" in line:
            acknowledged[line["head"][0]].append(line["written"])
    for session_id in logs.keys() | acknowledged.keys():
        texts = invariants.user_texts(logs.get(session_id, []))
        _check_session(session_id, acknowledged[session_id], texts, result)


def _check_session(session_id: str, acknowledged: Sequence[str], stored: Sequence[str], result: TrialResult) -> None:
    times = Counter(stored)
    for text in acknowledged:
        if not times[text]:
            result.add_lost(f"{text!r} was acknowledged in {session_id} and is missing")
    numbers: dict[str, list[int]] = defaultdict(list)
    for text, count in times.items():  # in the order of their first place in the log
        name, _, number = text.partition(" ")
        if number == writer.LATE:
            result.add_doubled(f"dead worker {name} wrote to {session_id}")
        elif count > 1:
            result.add_doubled(f"{text!r} is present {count} times in {session_id}")
        if number.isdecimal():
            numbers[name].append(int(number))
    for name, found in numbers.items():
        if found != list(range(1, len(found) + 1)):
            result.add_lost(f"the messages of {name} in {session_id} are not complete and in order")
