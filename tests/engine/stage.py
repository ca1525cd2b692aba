"""A complete engine on a real store, with a scripted model and tools that record what they did."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from holdfast.clock import SystemClock
from holdfast.engine.admission.admit import Admission
from holdfast.engine.admission.open_session import OpenRequest
from holdfast.engine.compaction.compact import CompactionSettings
from holdfast.engine.delegation.create import DelegationLimits
from holdfast.engine.engine import Engine
from holdfast.engine.explain import ExplainSettings
from holdfast.engine.liveness.dead_workers import DeadWorkers
from holdfast.engine.liveness.janitor import Janitor, JanitorSettings
from holdfast.engine.liveness.ownership import OwnedSessions
from holdfast.engine.liveness.take_over import Adopt
from holdfast.engine.process_port import ProcessPort
from holdfast.engine.reset.policy import ResetPolicies
from holdfast.engine.reset.reset import Resets
from holdfast.engine.scheduler import Scheduler
from holdfast.engine.services import EngineServices
from holdfast.engine.spending.meter import FindPrice, Meter, SpendingLimits, unknown_price
from holdfast.engine.streaming.bus import Bus, LiveText
from holdfast.engine.submission import NewMessage
from holdfast.engine.turn.delegate_call import DelegationSettings
from holdfast.engine.turn.loop import GoalCheckSettings, TurnSettings
from holdfast.engine.turn.memory_call import MemorySettings
from holdfast.engine.turn.model_call import ModelCallSettings
from holdfast.engine.turn.tool_call import ToolCallSettings
from holdfast.model.answer import Answer
from holdfast.model.delegation import delegation_of
from holdfast.model.entry import Entry
from holdfast.model.errors import Invalid
from holdfast.model.event import Event
from holdfast.model.finding import Finding
from holdfast.model.ids import WORKER, Ids
from holdfast.model.instructions import LoadInstructions
from holdfast.model.message import Content
from holdfast.model.provider import AskModel, Delta, ModelReply, ModelRequest, StreamRestarted, ToolSpec
from holdfast.model.session import Session
from holdfast.model.times import Clock
from holdfast.model.tool import Tool, ToolContext, ToolOutput
from holdfast.process_lookup import current_identity
from holdfast.providers.scripted import Script, ScriptedProvider, ScriptStep
from holdfast.store.repos import approvals, input_queue, workers
from holdfast.store.repos.approvals import Approval
from holdfast.store.repos.input_queue import Input
from holdfast.store.repos.workers import Identity
from holdfast.store.sqlite.driver import SqliteDatabase
from holdfast.tools.command_snapshots import CommandSnapshots
from holdfast.tools.file_restorer import FileRestorer
from holdfast.tools.toolbox import Toolbox
from tests.fakes.migrated import open_migrated

PACE = JanitorSettings(stale_seconds=90, sweep_seconds=60, idle_minutes=60)


def gone() -> Identity:
    """A process of this machine that is certainly gone: its pid now belongs to this process."""
    return msgspec.structs.replace(current_identity(), process_started="1")


def elsewhere() -> Identity:
    """A process of another machine, of which only the heartbeats are known here."""
    return msgspec.structs.replace(current_identity(), host="elsewhere")


class Mailer:
    """Has a side effect: each run is one sent mail, whatever happens to the process."""

    def __init__(self, outbox: Path) -> None:
        self.spec = ToolSpec(
            "mail", "Sends a mail.", {"type": "object", "properties": {"to": {"type": "string"}}, "required": ["to"]}
        )
        self.repeatable = False
        self.outbox = outbox

    def risk(self, arguments: dict[str, object], scene: ToolContext) -> tuple[Finding, ...]:
        return (Finding("it is a mail to everybody"),) if arguments["to"] == "all" else ()

    async def run(self, arguments: dict[str, object], scene: ToolContext) -> ToolOutput:
        with self.outbox.open("a") as file:
            file.write(f"{arguments['to']}\n")
        return ToolOutput.say(f"sent to {arguments['to']}")


class Reader:
    """Changes nothing, so it may be run again."""

    def __init__(self) -> None:
        self.spec = ToolSpec("look", "Looks at something.", {"type": "object", "properties": {}})
        self.repeatable = True
        self.runs = 0
        self.says = "a quiet place"

    def risk(self, arguments: dict[str, object], scene: ToolContext) -> tuple[Finding, ...]:
        return ()

    async def run(self, arguments: dict[str, object], scene: ToolContext) -> ToolOutput:
        self.runs += 1
        return ToolOutput.say(self.says)


class HangingTool:
    """Never returns by itself."""

    def __init__(self) -> None:
        self.spec = ToolSpec("sleep", "Sleeps.", {"type": "object", "properties": {}})
        self.repeatable = False
        self.sleeping = asyncio.Event()
        self.woken = False

    def risk(self, arguments: dict[str, object], scene: ToolContext) -> tuple[Finding, ...]:
        return ()

    async def run(self, arguments: dict[str, object], scene: ToolContext) -> ToolOutput:
        self.sleeping.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.woken = True
        raise AssertionError("nobody wakes a sleeper")


class Breaker:
    """Has a bug."""

    def __init__(self) -> None:
        self.spec = ToolSpec("broken", "Breaks.", {"type": "object", "properties": {}})
        self.repeatable = False

    def risk(self, arguments: dict[str, object], scene: ToolContext) -> tuple[Finding, ...]:
        return ()

    async def run(self, arguments: dict[str, object], scene: ToolContext) -> ToolOutput:
        raise ZeroDivisionError("a bug")


@dataclass
class Stage:
    """One worker. Several may be set up on one store."""

    database: SqliteDatabase
    engine: Engine
    scheduler: Scheduler
    mailer: Mailer
    reader: Reader
    hanging_tool: HangingTool
    requests: list[ModelRequest] = field(default_factory=list)

    @property
    def worker_id(self) -> str:
        return self.engine.services.worker_id

    def janitor(self, pace: JanitorSettings = PACE) -> Janitor:
        """A new janitor of this worker, which has not seen any heartbeat yet."""
        return Janitor(self.engine.services, current_identity(), pace, self.engine.take_up)

    async def session(self, **opening: object) -> Session:
        return (await self.engine.open(OpenRequest(**{"source": "api", **opening}))).session  # type: ignore[arg-type]

    async def admit(self, session_id: str, content: str | tuple[Content, ...], **options: Any) -> Admission:
        """Submit a message and return once it is durable."""
        return (await self.engine.submit(NewMessage(session_id, content, **options))).admission

    async def say(
        self, session_id: str, content: str | tuple[Content, ...], **options: Any
    ) -> AsyncIterator[Entry | LiveText]:
        """Submit a message and follow its turn to the end."""
        turn = await self.engine.submit(NewMessage(session_id, content, **options), stream="live")
        async with aclosing(turn.follow()) as items:
            async for item in items:
                yield item

    async def approve(self, session_id: str, turn_id: str, call_id: str, *, allowed: bool, by: str) -> None:
        await self.engine.answer((session_id, turn_id, call_id), Answer(allowed=allowed), by=by)

    async def questions(self, session_id: str) -> list[Approval]:
        return await self.database.read(approvals.list_unanswered, session_id)

    async def queued(self, session_id: str) -> list[Input]:
        return await self.database.read(input_queue.list_waiting, session_id)

    async def play(self, session_id: str, text: str, **options: object) -> list[Event]:
        """Send a message and return the committed events of its turn."""
        return [item.event async for item in self.say(session_id, text, **options) if isinstance(item, Entry)]

    async def live_text(self, session_id: str, text: str) -> str:
        return "".join(
            [
                item.text
                async for item in self.say(session_id, text)
                if isinstance(item, LiveText) and item.kind == "text"
            ]
        )

    async def log(self, session_id: str) -> list[Event]:
        _, entries = await self.engine.read(session_id)
        return [entry.event for entry in entries]


async def set_up(
    folder: Path,
    *steps: ScriptStep,
    database: SqliteDatabase | None = None,
    ask: AskModel | None = None,
    model: str = "play",
    approvals: str = "ask",
    approval_seconds: float | None = 0.2,
    max_steps: int = 20,
    turn_seconds: float = 60.0,
    step_seconds: float = 30.0,
    clock: Clock | None = None,
    who: Identity | None = None,
    compacting: CompactionSettings | None = None,
    tools: Sequence[Tool] = (),
    adopt: Adopt | None = None,
    pause_after: Callable[[int], float] = lambda failures: 0.0,
    leaves_queue: bool = False,
    limits: SpendingLimits | None = None,
    find_price: FindPrice = unknown_price,
    delegation: DelegationLimits | None = None,
    instructions: LoadInstructions | None = None,
    snapshots: CommandSnapshots | None = None,
    memory: MemorySettings | None = None,
) -> Stage:
    """Open the store, register a worker and build its engine; a model's script is played step by step.

    `who` is the process of the worker, if not this one. Without `compacting` no context is ever compacted.
    """
    database = database or await open_migrated(folder / "holdfast.db")
    clock = clock or SystemClock()
    ids = Ids(clock.now)
    worker_id = ids.make(WORKER)
    await database.write(workers.register, worker_id, "test", who or current_identity(), version="0", at=clock.now())
    provider = ScriptedProvider({"play": Script(steps=steps)} if steps else {})
    mailer, reader, hanging_tool = Mailer(folder / "outbox"), Reader(), HangingTool()
    toolbox = Toolbox([mailer, reader, hanging_tool, Breaker(), *tools])
    requests: list[ModelRequest] = []

    async def recorded(request: ModelRequest) -> AsyncIterator[Delta | StreamRestarted | ModelReply]:
        requests.append(request)
        async for item in (ask or provider.ask)(request):
            yield item

    goal_check = GoalCheckSettings(model, recorded, 3)

    def prepare(session: Session, opened: Event) -> TurnSettings:
        asking = ModelCallSettings(
            model, "Be brief.", recorded, step_seconds, meter, limits is not None, approval_seconds is None
        )
        link = delegation_of(session, opened)
        tools = toolbox if link.tools is None else toolbox.only(link.tools)
        may_delegate = None if delegation is None else delegating(tools, delegation, folder)
        acting = ToolCallSettings(
            tools,
            approvals,  # type: ignore[arg-type]
            approval_seconds,
            step_seconds,
            lambda: folder,
            folder / "files",
            delegation=may_delegate,
            memory=memory,
        )
        steps = min(link.max_steps or max_steps, max_steps)
        return TurnSettings(asking, acting, steps, turn_seconds, compacting, link.max_tokens, instructions, goal_check)

    services = EngineServices(database, clock, ids, Bus(), worker_id, current_identity())
    meter = Meter(services, limits, find_price)
    scheduler = Scheduler(services, prepare, adopt=adopt, pause_after=pause_after)
    files = FileRestorer(folder / "home", snapshots)
    engine = Engine(services, scheduler, "scripted:play", meter=meter, leaves_queue=leaves_queue, files=files)
    return Stage(database, engine, scheduler, mailer, reader, hanging_tool, requests)


def delegating(tools: Toolbox, limits: DelegationLimits, folder: Path) -> DelegationSettings:
    """Delegation within these limits; there is one model, `play`."""

    def check_model(name: str) -> str:
        if name != "play":
            raise Invalid(f"unknown model {name!r}. Models: play")
        return name

    names = tuple(spec.name for spec in tools.specs)
    return DelegationSettings(limits, lambda: names, check_model, lambda: str(folder), "local")


def with_resets(
    engine: Engine,
    policies: ResetPolicies,
    registry: ProcessPort | None,
    *,
    explain: ExplainSettings | None = None,
    **options: Any,
) -> Engine:
    """The same engine with other reset policies and background processes."""
    services = engine.services
    owned = OwnedSessions(services, DeadWorkers(services))
    resets = Resets(services, owned, policies, registry, **options)
    return Engine(
        services,
        engine._scheduler,
        "scripted:play",
        supervisor=engine.supervisor,
        owned=owned,
        resets=resets,
        processes=registry,
        explain=explain,
    )
