"""A worker for trials: a scripted model, a tool with a side effect, a tool without one, and a janitor."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import holdfast
from holdfast.clock import SystemClock
from holdfast.engine.engine import Engine
from holdfast.engine.liveness.janitor import Janitor, JanitorSettings
from holdfast.engine.scheduler import Scheduler
from holdfast.engine.services import EngineServices
from holdfast.engine.streaming.bus import Bus
from holdfast.engine.turn.loop import TurnSettings
from holdfast.engine.turn.model_call import ModelCallSettings
from holdfast.engine.turn.tool_call import ToolCallSettings
from holdfast.model.event import Event
from holdfast.model.finding import Finding
from holdfast.model.ids import WORKER, Ids
from holdfast.model.provider import ToolSpec
from holdfast.model.session import Session
from holdfast.model.times import Clock
from holdfast.model.tool import ToolContext, ToolOutput
from holdfast.process_lookup import current_identity
from holdfast.providers.scripted import Script, ScriptedCall, ScriptedProvider, ScriptStep
from holdfast.store.database import Database
from holdfast.store.repos import workers
from holdfast.tools.toolbox import Toolbox

TWO_CALLS = "two-calls"
"""A model that calls both tools."""
ECHO = "echo"
SCRIPT = Script(
    steps=(ScriptStep(say="On it.", call=(ScriptedCall("mark"), ScriptedCall("look"))), ScriptStep(say="It is done.")),
    loop=True,
)
JANITOR = JanitorSettings(stale_seconds=90, sweep_seconds=60, idle_minutes=60)
MARKS = "marks"
STEP_SECONDS = 60.0


class MarkTool:
    """Has a side effect: each run appends a line to a file, which survives a crash of the process."""

    spec = ToolSpec("mark", "Append a line to a file.", {"type": "object", "properties": {}})
    repeatable = False

    def __init__(self, folder: Path) -> None:
        self._file = folder / MARKS

    def risk(self, arguments: dict[str, object], context: ToolContext) -> tuple[Finding, ...]:
        return ()

    async def run(self, arguments: dict[str, object], context: ToolContext) -> ToolOutput:
        file = os.open(self._file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            os.write(file, f"{context.session_id} {context.turn_id}\n".encode())
        finally:
            os.close(file)
        return ToolOutput.say("marked")


class LookTool:
    """Has no side effect, so recovery may run it again."""

    spec = ToolSpec("look", "Return a fixed text.", {"type": "object", "properties": {}})
    repeatable = True

    def risk(self, arguments: dict[str, object], context: ToolContext) -> tuple[Finding, ...]:
        return ()

    async def run(self, arguments: dict[str, object], context: ToolContext) -> ToolOutput:
        return ToolOutput.say("nothing new")


@dataclass(frozen=True)
class TrialWorker:
    engine: Engine
    janitor: Janitor

    @property
    def id(self) -> str:
        return self.engine.services.worker_id

    async def recover(self) -> None:
        """Sweep once as a janitor, and wait until every turn that this started has ended."""
        await self.janitor.sweep()
        await self.engine.settled()


@asynccontextmanager
async def running_worker(
    database: Database, folder: Path, *, model: str = TWO_CALLS, clock: Clock | None = None
) -> AsyncIterator[TrialWorker]:
    """Register a worker on the store and run it until the block ends."""
    clock = clock or SystemClock()
    ids = Ids(clock.now)
    process = current_identity()
    services = EngineServices(database, clock, ids, Bus(), ids.make(WORKER), process)
    await database.write(
        workers.register, services.worker_id, "torture", process, version=holdfast.__version__, at=clock.now()
    )
    provider = ScriptedProvider({TWO_CALLS: SCRIPT})
    toolbox = Toolbox([MarkTool(folder), LookTool()])

    def prepare(session: Session, opened: Event) -> TurnSettings:
        model_call = ModelCallSettings(model, "Follow the instructions.", provider.ask, STEP_SECONDS)
        tool_call = ToolCallSettings(toolbox, "allow", None, STEP_SECONDS, lambda: folder, folder / "files")
        return TurnSettings(model_call, tool_call, 20, 2 * STEP_SECONDS, None)

    engine = Engine(services, Scheduler(services, prepare), f"scripted:{model}")
    try:
        yield TrialWorker(engine, Janitor(services, process, JANITOR, engine.take_up))
    finally:
        await engine.close()
