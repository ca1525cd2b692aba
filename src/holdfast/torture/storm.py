"""Processes write as fast as they can, to their own sessions and to shared ones, and are killed at any moment."""

import asyncio
from collections import Counter, defaultdict
from collections.abc import Sequence
from contextlib import AsyncExitStack

from holdfast.model.ids import SESSION, derive
from holdfast.torture import proof
from holdfast.torture.outcome import Outcome, Stage
from holdfast.torture.scene import on_stage
from holdfast.torture.start import Child, Line, started

AT_ONCE = 3
SHARED = 2
LONGEST_LIFE = 0.5
"""Seconds that a process may write at most before one is killed."""


async def storm(stage: Stage, outcome: Outcome) -> None:
    shared = [derive(SESSION, stage.chance.getrandbits(40), f"shared {number}") for number in range(SHARED)]
    said: list[list[Line]] = []
    async with AsyncExitStack() as stack:

        async def start(dead: Sequence[Line] = ()) -> Child:
            worker = next((line["worker"] for line in dead if "worker" in line), "")
            held = [line["held"] for line in dead if "held" in line][-SHARED - 1 :]
            given = stage.given(shared=shared, dead=worker, held=held)
            child = await stack.enter_async_context(started("hammer", given))
            said.append(child.lines)  # which goes on growing
            return child

        living = [await start() for _ in range(AT_ONCE)]
        for _ in range(stage.rounds):
            victim = living.pop(stage.chance.randrange(AT_ONCE))
            await victim.until(lambda lines: any("said" in line for line in lines))
            await asyncio.sleep(stage.chance.uniform(0, LONGEST_LIFE))
            outcome.count("kills", await victim.kill())
            living.append(await start(victim.lines))
        for child in living:
            await child.until(lambda lines: any("said" in line for line in lines))
            child.tell("stop")
        for child in living:
            await child.end_well()
    await _check(stage, said, outcome)


async def _check(stage: Stage, said: Sequence[Sequence[Line]], outcome: Outcome) -> None:
    acknowledged: dict[str, list[str]] = defaultdict(list)
    for line in (line for lines in said for line in lines if "said" in line):
        acknowledged[line["session"]].append(line["said"])
    outcome.count("messages", sum(map(len, acknowledged.values())))
    database = await stage.open(stage.url)
    try:
        async with on_stage(database, stage.folder) as scene:
            await scene.see_to_everything()
            found = await proof.logs(database, outcome)
            for session_id in found.keys() | acknowledged.keys():
                _compare(session_id, acknowledged[session_id], proof.words(found.get(session_id, [])), outcome)
            await proof.nothing_is_leaked(database, outcome, [scene.engine.ground.worker_id])
    finally:
        await database.close()


def _compare(session_id: str, acknowledged: Sequence[str], stored: Sequence[str], outcome: Outcome) -> None:
    """All that was acknowledged is there once, each worker's messages in their order, and none that was written too late."""
    times = Counter(stored)
    for text in acknowledged:
        if not times[text]:
            outcome.lose(f"{text!r} was acknowledged in {session_id} and is not there")
    for text, count in times.items():
        if count > 1 or " in the name " in f" {text}":
            outcome.double(f"{text!r} is there {count} times in {session_id}")
    newest: dict[str, int] = {}
    for text in stored:
        worker, _, number = text.partition(" ")
        if number.isdecimal():
            if int(number) < newest.get(worker, 0):
                outcome.lose(f"{text!r} in {session_id} stands behind what was said after it")
            newest[worker] = int(number)
