"""The clock jumps by years, to and fro, while turns are played and sweeps are made: the living are left alone, the dead are not."""

import random

from holdfast.clock import SystemClock
from holdfast.engine.janitor import Janitor
from holdfast.engine.opening import Opening
from holdfast.identity import identity
from holdfast.model.event import SessionOpened
from holdfast.model.ids import SESSION
from holdfast.model.times import DAY
from holdfast.store import log, sessions, workers
from holdfast.store.database import Database
from holdfast.torture import proof
from holdfast.torture.outcome import Outcome, Stage
from holdfast.torture.scene import PACE, Scene, on_stage
from holdfast.torture.start import Child, started

FURTHEST = 5 * 365 * DAY
HELD = 3


class JumpingClock:
    """What time it says depends on chance; how much time passes does not."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._real = SystemClock()

    def now(self) -> int:
        return self._real.now() + self._chance.randint(-FURTHEST, FURTHEST)

    def monotonic(self) -> float:
        return self._real.monotonic()


async def clock_jumps(stage: Stage, outcome: Outcome) -> None:
    database = await stage.open(stage.url)
    clock = JumpingClock(stage.chance)
    try:
        async with on_stage(database, stage.folder, clock=clock) as scene:
            ids = [scene.engine.ground.ids.make(SESSION) for _ in range(2 * HELD)]
            for session_id in ids:
                await database.write(sessions.create, session_id, SessionOpened(source="run"), at=clock.now())
            async with (
                started("holder", stage.given(sessions=ids[:HELD])) as living,
                started("holder", stage.given(sessions=ids[HELD:])) as doomed,
            ):
                worker = (await living.hear("holds"))["holds"]
                await doomed.hear("holds")
                await doomed.kill()
                await _play(stage, scene, living, outcome)
                await _look_at_the_living(database, worker, living, outcome)
                await proof.nothing_is_leaked(database, outcome, [scene.engine.ground.worker_id, worker])
            await _look_at_the_logs(database, stage, ids[:HELD], outcome)
            for session_id in ids[HELD:]:
                if (await database.read(sessions.get, session_id)).state != "ended":
                    outcome.leak(f"{session_id} was a dead worker's and has not ended")
    finally:
        await database.close()


async def _play(stage: Stage, scene: Scene, living: Child, outcome: Outcome) -> None:
    """Turns in three sessions, with a sweep by a fresh janitor after each."""
    opened = [(await scene.engine.open(Opening(source="api"))).session.id for _ in range(3)]
    for number in range(stage.rounds):
        async for _ in scene.engine.say(opened[number % 3], f"word {number}"):
            pass
        living.tell(f"word {number}")
        await living.hear("obeyed")
        await Janitor(scene.engine.ground, identity(), PACE, scene.engine.take_up).sweep()
        outcome.count("jumps")
        outcome.count("sweeps")
    await scene.engine.settled()
    for place, session_id in enumerate(opened):
        said = proof.words(await scene.engine.ground.database.read(log.read, session_id))
        if said != [f"word {number}" for number in range(stage.rounds) if number % 3 == place]:
            outcome.lose(f"{session_id} holds {said}")


async def _look_at_the_living(database: Database, worker: str, living: Child, outcome: Outcome) -> None:
    """It still has what it held."""
    found = await database.read(workers.get, worker)
    if found is None or found.ended_at is not None:
        outcome.lose(f"{worker} was declared dead while it lived")
    for line in living.lines:
        if "order" in line and line["done"] is not True:
            outcome.lose(f"a living worker could not write to {line['session']}: {line['done']}")


async def _look_at_the_logs(database: Database, stage: Stage, held: list[str], outcome: Outcome) -> None:
    found = await proof.logs(database, outcome)
    marks = proof.marks_left(stage.folder)
    for session_id, entries in found.items():
        if session_id not in held:
            proof.turns_are_whole(session_id, entries, marks[session_id], outcome)
        elif proof.words(entries) != [f"word {number}" for number in range(stage.rounds)]:
            outcome.lose(f"{session_id} holds {proof.words(entries)}")
