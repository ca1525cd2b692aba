"""A process that slept while another took its sessions over wakes up, and must not be able to write anything."""

import signal

from holdfast.clock import SystemClock
from holdfast.model.event import SessionOpened, UserSaid
from holdfast.model.ids import SESSION
from holdfast.model.message import Text
from holdfast.store import leases, log, sessions, workers
from holdfast.store.database import Database
from holdfast.torture import proof
from holdfast.torture.outcome import Outcome, Stage
from holdfast.torture.scene import Scene, on_stage
from holdfast.torture.start import Child, started

ORDERS = ("late", "draft", "take", "release", "beat")
MANY = 20


async def two_writers(stage: Stage, outcome: Outcome) -> None:
    database = await stage.open(stage.url)
    try:
        async with on_stage(database, stage.folder) as scene:
            ids = [scene.engine.ground.ids.make(SESSION) for _ in range(min(stage.rounds, MANY))]
            for session_id in ids:
                await database.write(sessions.create, session_id, SessionOpened(source="run"), at=_now())
            async with started("holder", stage.given(sessions=ids)) as child:
                await _oust(database, scene, child, ids)
                await _try_all(child, outcome)
                await child.kill()
            for session_id in ids:
                entries = await database.read(log.read, session_id)
                if proof.words(entries) != ["early", "in time", "in time again"]:
                    outcome.lose(f"{session_id} holds {proof.words(entries)}")
            await scene.see_to_everything()
            await proof.logs(database, outcome)
            await proof.nothing_is_leaked(database, outcome, [scene.engine.ground.worker_id])
    finally:
        await database.close()


async def _oust(database: Database, scene: Scene, child: Child, ids: list[str]) -> None:
    """Let it write, stop it, bury it as a janitor elsewhere would, write in its place, and let it wake up and write."""
    worker = (await child.hear("holds"))["holds"]
    child.tell("early")
    await child.hear("obeyed")
    child.signal(signal.SIGSTOP)
    await database.write(workers.bury, worker, "silent", at=_now())
    held = [await database.write(leases.take, one, scene.engine.ground.worker_id) for one in ids]
    for lease in held:
        await database.write(log.append, lease, [_said("in time")], at=_now())
    for order in ORDERS:
        child.tell(order)
    child.signal(signal.SIGCONT)
    for _ in ORDERS:
        await child.hear("obeyed")
    for lease in held:
        await database.write(log.append, lease, [_said("in time again")], at=_now())
        await database.write(leases.release, lease)


async def _try_all(child: Child, outcome: Outcome) -> None:
    for line in child.lines:
        if line.get("order") in ORDERS:
            outcome.count("late writes")
            if line["done"] is True:
                outcome.double(f"a buried worker could {line['order']} in {line['session']}")


def _said(text: str) -> UserSaid:
    return UserSaid(turn_id="turn-second", parts=(Text(text),))


def _now() -> int:
    return SystemClock().now()
