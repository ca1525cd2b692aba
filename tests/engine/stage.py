"""A whole engine on a real store, with a model that plays a script and tools that write down what they did."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from holdfast.clock import SystemClock
from holdfast.engine.ask import Asking, AskModel
from holdfast.engine.bus import Bus, Live
from holdfast.engine.compact import Compacting
from holdfast.engine.coordinator import Coordinator
from holdfast.engine.engine import Engine
from holdfast.engine.hand import Ground
from holdfast.engine.janitor import Janitor, Pace
from holdfast.engine.opening import Opening
from holdfast.engine.toolcall import Acting
from holdfast.engine.turn import Playing
from holdfast.identity import identity
from holdfast.model.asking import Delta, Reply, Request, Restarted, ToolSpec
from holdfast.model.entry import Entry
from holdfast.model.event import Event
from holdfast.model.ids import WORKER, Ids
from holdfast.model.session import Session
from holdfast.model.times import Clock
from holdfast.model.tool import Output, Scene
from holdfast.providers.scripted import Script, ScriptedProvider, Step
from holdfast.store import workers
from holdfast.store.sqlite import SqliteDatabase, open_sqlite
from holdfast.store.workers import Identity
from holdfast.tools.registry import Toolbox

PACE = Pace(stale_seconds=90, sweep_seconds=60, idle_minutes=60)


def gone() -> Identity:
    """A process of this machine that is certainly gone: its pid has been given to another, which is this one."""
    return msgspec.structs.replace(identity(), process_started="1")


def elsewhere() -> Identity:
    """A process of another machine, of which nothing but its beats is known here."""
    return msgspec.structs.replace(identity(), host="elsewhere")


class Mailer:
    """Acts on the world: each run is one mail sent, whatever becomes of the process."""

    def __init__(self, outbox: Path) -> None:
        self.spec = ToolSpec(
            "mail", "Sends a mail.", {"type": "object", "properties": {"to": {"type": "string"}}, "required": ["to"]}
        )
        self.repeatable = False
        self.outbox = outbox

    def risk(self, arguments: dict[str, object]) -> str | None:
        return "it is a mail to everybody" if arguments["to"] == "all" else None

    async def run(self, arguments: dict[str, object], scene: Scene) -> Output:
        with self.outbox.open("a") as file:
            file.write(f"{arguments['to']}\n")
        return Output.say(f"sent to {arguments['to']}")


class Reader:
    """Changes nothing, so it may be run again."""

    def __init__(self) -> None:
        self.spec = ToolSpec("look", "Looks at something.", {"type": "object", "properties": {}})
        self.repeatable = True
        self.runs = 0
        self.says = "a quiet place"

    def risk(self, arguments: dict[str, object]) -> str | None:
        return None

    async def run(self, arguments: dict[str, object], scene: Scene) -> Output:
        self.runs += 1
        return Output.say(self.says)


class Sleeper:
    """Never returns by itself."""

    def __init__(self) -> None:
        self.spec = ToolSpec("sleep", "Sleeps.", {"type": "object", "properties": {}})
        self.repeatable = False
        self.sleeping = asyncio.Event()
        self.woken = False

    def risk(self, arguments: dict[str, object]) -> str | None:
        return None

    async def run(self, arguments: dict[str, object], scene: Scene) -> Output:
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

    def risk(self, arguments: dict[str, object]) -> str | None:
        return None

    async def run(self, arguments: dict[str, object], scene: Scene) -> Output:
        raise ZeroDivisionError("a bug")


@dataclass
class Stage:
    """One worker. Several may be set up on one store."""

    database: SqliteDatabase
    engine: Engine
    coordinator: Coordinator
    mailer: Mailer
    reader: Reader
    sleeper: Sleeper
    requests: list[Request] = field(default_factory=list)

    @property
    def worker_id(self) -> str:
        return self.engine.ground.worker_id

    def janitor(self, pace: Pace = PACE) -> Janitor:
        """A janitor of this worker; it remembers what it has seen, so that each call makes one that knows nothing."""
        return Janitor(self.engine.ground, identity(), pace, self.engine.take_up)

    async def session(self, **opening: object) -> Session:
        return (await self.engine.open(Opening(**{"source": "api", **opening}))).session  # type: ignore[arg-type]

    async def play(self, session_id: str, text: str, **options: object) -> list[Event]:
        """Say it and return the committed events of the turn."""
        return [item.event async for item in self.engine.say(session_id, text, **options) if isinstance(item, Entry)]  # type: ignore[arg-type]

    async def live_text(self, session_id: str, text: str) -> str:
        return "".join(
            [
                item.text
                async for item in self.engine.say(session_id, text)
                if isinstance(item, Live) and item.kind == "text"
            ]
        )

    async def log(self, session_id: str) -> list[Event]:
        _, entries = await self.engine.read(session_id)
        return [entry.event for entry in entries]


async def set_up(
    folder: Path,
    *steps: Step,
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
    compacting: Compacting | None = None,
) -> Stage:
    """Open the store, register a worker and build its engine; a model's script is played step by step.

    `who` is the process that the worker is said to be, if not this one. Without `compacting` no context is ever compacted.
    """
    database = database or await open_sqlite(folder / "holdfast.db")
    clock = clock or SystemClock()
    ids = Ids(clock.now)
    worker_id = ids.make(WORKER)
    await database.write(workers.register, worker_id, "test", who or identity(), version="0", at=clock.now())
    provider = ScriptedProvider({"play": Script(steps=steps)} if steps else {})
    mailer, reader, sleeper = Mailer(folder / "outbox"), Reader(), Sleeper()
    toolbox = Toolbox([mailer, reader, sleeper, Breaker()])
    requests: list[Request] = []

    async def recorded(request: Request) -> AsyncIterator[Delta | Restarted | Reply]:
        requests.append(request)
        async for item in (ask or provider.ask)(request):
            yield item

    def prepare(session: Session, opened: Event) -> Playing:
        asking = Asking(model, "Be brief.", recorded, step_seconds)
        acting = Acting(toolbox, approvals, approval_seconds, step_seconds, folder, folder / "files")  # type: ignore[arg-type]
        return Playing(asking, acting, max_steps, turn_seconds, compacting)

    ground = Ground(database, clock, ids, Bus(), worker_id)
    coordinator = Coordinator(ground, identity(), prepare)
    engine = Engine(ground, coordinator, default_model="scripted:play")
    return Stage(database, engine, coordinator, mailer, reader, sleeper, requests)
