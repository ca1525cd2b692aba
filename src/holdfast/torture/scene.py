"""A worker with everything a turn needs: a model that plays a script, a tool that leaves a mark, and a janitor."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import holdfast
from holdfast.clock import SystemClock
from holdfast.engine.ask import Asking
from holdfast.engine.bus import Bus
from holdfast.engine.coordinator import Coordinator
from holdfast.engine.engine import Engine
from holdfast.engine.hand import Ground
from holdfast.engine.janitor import Janitor, Pace
from holdfast.engine.toolcall import Acting
from holdfast.engine.turn import Playing
from holdfast.identity import identity
from holdfast.model.asking import ToolSpec
from holdfast.model.event import Event
from holdfast.model.ids import WORKER, Ids
from holdfast.model.session import Session
from holdfast.model.times import Clock
from holdfast.model.tool import Output
from holdfast.model.tool import Scene as Place
from holdfast.providers.scripted import Call, Script, ScriptedProvider, Step
from holdfast.store import workers
from holdfast.store.database import Database
from holdfast.tools.registry import Toolbox

ERRAND = "errand"
ECHO = "echo"
SCRIPT = Script(
    steps=(Step(say="On it.", call=(Call("mark"), Call("look"))), Step(say="It is done.")),
    loop=True,
)
PACE = Pace(stale_seconds=90, sweep_seconds=60, idle_minutes=60)
MARKS = "marks"
STEP_SECONDS = 60.0


class Mark:
    """Acts on the world: each run leaves a line in a file, whatever becomes of the process."""

    spec = ToolSpec("mark", "Leaves a mark.", {"type": "object", "properties": {}})
    repeatable = False

    def __init__(self, folder: Path) -> None:
        self._file = folder / MARKS

    def risk(self, arguments: dict[str, object]) -> str | None:
        return None

    async def run(self, arguments: dict[str, object], scene: Place) -> Output:
        file = os.open(self._file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            os.write(file, f"{scene.session_id} {scene.turn_id}\n".encode())
        finally:
            os.close(file)
        return Output.say("left")


class Look:
    """Changes nothing, so it may be run again."""

    spec = ToolSpec("look", "Looks around.", {"type": "object", "properties": {}})
    repeatable = True

    def risk(self, arguments: dict[str, object]) -> str | None:
        return None

    async def run(self, arguments: dict[str, object], scene: Place) -> Output:
        return Output.say("a quiet place")


@dataclass(frozen=True)
class Scene:
    engine: Engine
    janitor: Janitor

    async def see_to_everything(self) -> None:
        """What the janitor of a long-lived worker does, until nothing is left to do."""
        await self.janitor.sweep()
        await self.engine.settled()


@asynccontextmanager
async def on_stage(
    database: Database, folder: Path, *, model: str = ERRAND, clock: Clock | None = None
) -> AsyncIterator[Scene]:
    """A worker on the store, until it leaves."""
    clock = clock or SystemClock()
    ids = Ids(clock.now)
    ours = identity()
    ground = Ground(database, clock, ids, Bus(), ids.make(WORKER))
    await database.write(
        workers.register, ground.worker_id, "torture", ours, version=holdfast.__version__, at=clock.now()
    )
    provider = ScriptedProvider({ERRAND: SCRIPT})
    toolbox = Toolbox([Mark(folder), Look()])

    def prepare(session: Session, opened: Event) -> Playing:
        asking = Asking(model, "Do as you are told.", provider.ask, STEP_SECONDS)
        acting = Acting(toolbox, "allow", None, STEP_SECONDS, folder, folder / "files")
        return Playing(asking, acting, 20, 2 * STEP_SECONDS, None)

    engine = Engine(ground, Coordinator(ground, ours, prepare), f"scripted:{model}")
    try:
        yield Scene(engine, Janitor(ground, ours, PACE, engine.take_up))
    finally:
        await engine.close()
