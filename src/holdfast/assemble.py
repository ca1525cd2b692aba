"""Puts an engine together from the settings: which model, which tools, which limits."""

import asyncio
import logging
import random
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

import holdfast
from holdfast.clock import SystemClock, zone
from holdfast.engine.ask import Asking
from holdfast.engine.bus import Bus
from holdfast.engine.calendar import Policies, Policy
from holdfast.engine.compact import Compacting
from holdfast.engine.coordinator import Coordinator, Prepare
from holdfast.engine.engine import Engine
from holdfast.engine.hand import Ground
from holdfast.engine.heartbeat import Heartbeat
from holdfast.engine.janitor import Chore, Deed, Janitor, Pace
from holdfast.engine.reset import Resets
from holdfast.engine.room import DEFAULT_WINDOW
from holdfast.engine.size import BYTES_PER_TOKEN
from holdfast.engine.summary import Author
from holdfast.engine.titles import Titles
from holdfast.engine.together import stop
from holdfast.engine.toolcall import Acting
from holdfast.engine.turn import Playing
from holdfast.identity import identity
from holdfast.model.asking import Delta, Provider, Reply, Request, Restarted
from holdfast.model.errors import Invalid
from holdfast.model.event import Event, SessionOpened
from holdfast.model.ids import WORKER, Ids
from holdfast.model.session import Session
from holdfast.processes.registry import Change, Registry, open_registry
from holdfast.providers import choose
from holdfast.providers.retry import Candidate, ask_with_retries
from holdfast.settings import ResetRule, Settings
from holdfast.store import workers
from holdfast.store.database import Database
from holdfast.tools.builtin import builtin
from holdfast.tools.process import ProcessTool
from holdfast.tools.recall import PAGE_CHARS, Recall
from holdfast.tools.registry import Toolbox
from holdfast.tools.send_file import SendFile
from holdfast.tools.terminal import without_secrets

logger = logging.getLogger(__name__)

SYSTEM = Path(__file__).parent / "engine" / "system.md"
UNTALENTED = ("local", "scripted")
"""Providers whose models do not name things well: their sessions are titled with the first words."""
SLOW_READING = 2_048
"""Tokens that a model on a busy processor reads, and sums up, well within the time that a piece of a summary has."""
ATTENDED = ("gateway",)
"""Where a question can be answered in place: there it waits for as long as it takes."""


class Models:
    """The providers in use, made when they are first asked."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._providers: dict[str, Provider] = {}

    def candidate(self, setting: str) -> Candidate:
        name, model = choose.parse(setting)
        provider = self._providers.get(name)
        if provider is None:
            access = self._settings.access(name)  # type: ignore[arg-type] # parse has checked the name
            key = access.api_key.reveal() if access.api_key else ""
            folder = self._settings.home / "models"
            provider = choose.make(name, api_key=key, base_url=access.base_url, models_dir=folder)
            self._providers[name] = provider
        return Candidate(provider, model)

    def ask(self, request: Request) -> AsyncIterator[Delta | Restarted | Reply]:
        """Ask the request's model, written as `provider:name`, and those that stand in for it."""
        return self._ask(request, *self._settings.fallback_models)

    def ask_alone(self, request: Request) -> AsyncIterator[Delta | Restarted | Reply]:
        """As `ask`, but nobody stands in."""
        return self._ask(request)

    async def _ask(self, request: Request, *others: str) -> AsyncIterator[Delta | Restarted | Reply]:
        candidates = [self.candidate(name) for name in dict.fromkeys((request.model, *others))]
        async with aclosing(ask_with_retries(candidates, request, sleep=asyncio.sleep, chance=random.random)) as stream:
            async for item in stream:
                yield item

    def window(self, setting: str) -> int:
        """How many tokens the model's context holds: as the provider says, else what is usual."""
        try:
            candidate = self.candidate(setting)
        except Invalid:  # a session may name a model that this release does not know; asking it says so
            return DEFAULT_WINDOW
        return candidate.provider.window(candidate.model) or DEFAULT_WINDOW

    def compacting(self, model: str) -> Compacting:
        """How the contexts of a model's sessions are compacted."""
        given = self._settings.context
        authors = (given.summary_model or model, model, *self._settings.fallback_models)
        return Compacting(
            window=given.window or self.window(model),
            compact_at=given.compact_at,
            keep_last=given.keep_last,
            author=Author(
                models=tuple(dict.fromkeys(authors)),
                ask=self.ask_alone,
                window_of=lambda name: self._author_window(name, given.window if name == model else None),
                timeout_seconds=given.summary_timeout_seconds,
                on_failure=given.on_summary_failure,
            ),
        )

    def _author_window(self, setting: str, given: int | None) -> int:
        """How much a model that sums up is given to read at once."""
        window = given or self.window(setting)
        return min(window, SLOW_READING) if setting.startswith("local:") else window

    async def close(self) -> None:
        for provider in self._providers.values():
            await provider.close()


@asynccontextmanager
async def open_engine(
    database: Database,
    settings: Settings,
    environment: Mapping[str, str],
    *,
    kind: str,
    sweeps: bool = False,
    attended: bool = False,
) -> AsyncIterator[Engine]:
    """An engine on the store, known there as a worker of that kind until it is closed.

    `attended` says that a person sits before it and is asked in place: questions wait for as long as it takes.
    """
    clock = SystemClock()
    ids = Ids(clock.now)
    ours = identity()
    ground = Ground(database, clock, ids, Bus(), ids.make(WORKER))
    await database.write(workers.register, ground.worker_id, kind, ours, version=holdfast.__version__, at=clock.now())
    models = Models(settings)
    environment = _harmless(settings, environment)
    registry = open_registry(database, settings, without_secrets(environment), clock=clock, ours=ours)
    async with _toolbox(database, settings, environment, registry) as toolbox:
        coordinator = Coordinator(ground, ours, _preparing(settings, models, toolbox, attended=attended))
        engine = Engine(ground, coordinator, settings.model)
        _equip(engine, settings, models, registry, environment.get("TZ", ""))
        janitor = Janitor(ground, ours, pace(settings), engine.take_up, engine.chores)
        try:
            async with Heartbeat(ground, settings.liveness.heartbeat_seconds, engine.declare_dead):
                # What ended while nobody was there is told with the first turn.
                await registry.take_stock()
                tasks = [asyncio.create_task(registry.attend(), name="processes")]
                tasks += [asyncio.create_task(janitor.work(), name="janitor")] if sweeps else []
                try:
                    yield engine
                finally:
                    await stop(*tasks)
                    await engine.close()
        finally:
            await models.close()


def _preparing(settings: Settings, models: Models, toolbox: Toolbox, *, attended: bool) -> Prepare:
    """How it is found out what a session's turns are played with."""
    system = settings.agent.system or SYSTEM.read_text("utf-8")

    def prepare(session: Session, opened: Event) -> Playing:
        model = session.summary.model or settings.model
        return Playing(
            Asking(model, system, models.ask, settings.agent.step_seconds),
            _acting(session, opened, toolbox, settings, attended=attended),
            settings.agent.max_steps,
            settings.agent.turn_seconds,
            models.compacting(model),
        )

    return prepare


def _equip(engine: Engine, settings: Settings, models: Models, registry: Registry, tz: str) -> None:
    """Give the engine what it can do without: processes, titles, resets. `tz` is the variable TZ."""
    ground = engine.ground
    engine.processes = registry
    if settings.agent.titles:
        engine.titles = Titles(ground, models.ask, lambda model: choose.parse(model).provider in UNTALENTED)
    engine.resets = Resets(
        ground,
        policies(settings, tz),
        registry,
        on_reset=settings.processes.on_reset,
        home=settings.gateway.home_channel,
    )
    engine.chores = (_seen_to(registry), engine.resets.sweep)


def _harmless(settings: Settings, environment: Mapping[str, str]) -> dict[str, str]:
    """The environment without the variables that the settings name as secret."""
    secret = {access.api_key_env for access in settings.models.values()}
    return {name: value for name, value in environment.items() if name not in secret}


def window(settings: Settings, model: str) -> int:
    """How many tokens the context of a session with that model may take."""
    return Models(settings).compacting(model or settings.model).window


def _seen_to(registry: Registry) -> Chore:
    """A look at all processes, as a chore of the janitor."""

    async def chore() -> list[Deed]:
        return [
            Deed(f"process {change.what}", session_id=change.process.session_id, evidence=_evidence(change))
            for change in await registry.refresh()
        ]

    return chore


def _evidence(change: Change) -> str:
    return f"{change.process.id}: {change.evidence}"


def policies(settings: Settings, tz: str) -> Policies:
    """When the sessions of each channel are reset. `tz` is the variable TZ."""
    every = settings.reset

    def policy(rule: ResetRule) -> Policy:
        return Policy(
            rule.mode or every.mode,
            rule.idle_minutes or every.idle_minutes,
            every.at_hour if rule.at_hour is None else rule.at_hour,
            zone(rule.timezone or every.timezone, tz),
        )

    return Policies(policy(ResetRule()), {name: policy(rule) for name, rule in every.channels.items()})


def pace(settings: Settings) -> Pace:
    """When the janitor looks, and when silence means death."""
    return Pace(settings.liveness.stale_seconds, settings.liveness.sweep_seconds, settings.api.idle_minutes)


def _acting(session: Session, opened: Event, toolbox: Toolbox, settings: Settings, *, attended: bool) -> Acting:
    folder = opened.workdir if isinstance(opened, SessionOpened) else None
    attended = attended or session.summary.source in ATTENDED
    return Acting(
        toolbox=toolbox,
        approvals=settings.agent.approvals,
        approval_seconds=None if attended else settings.agent.approval_seconds,
        step_seconds=settings.agent.turn_seconds,
        workdir=Path(folder) if folder and Path(folder).is_dir() else settings.home,
        files=settings.home / "files" / session.id,
    )


@asynccontextmanager
async def _toolbox(
    database: Database, settings: Settings, environment: Mapping[str, str], registry: Registry
) -> AsyncIterator[Toolbox]:
    """The tools that come with Holdfast, and those of the configured MCP servers while they are connected."""
    process = ProcessTool(registry, database, home=settings.home)
    # A page takes a tenth of the window at most, so that one can be read where there is room for little else.
    recall = Recall(database, min(PAGE_CHARS, window(settings, settings.model) * BYTES_PER_TOKEN // 10))
    send_file = SendFile(database, home=settings.home)
    tools = [*builtin(environment, home=settings.home, start_background=process.start), process, recall, send_file]
    if not settings.mcp:
        yield Toolbox(tools)
        return
    from holdfast.tools.mcp import McpServer, McpServers

    servers = [
        McpServer(
            name=name,
            command=mcp.command,
            url=mcp.url or "",
            env={key: secret.reveal() for key, secret in mcp.env.items()},
            headers={key: secret.reveal() for key, secret in mcp.headers.items()},
            trust=mcp.trust,
        )
        for name, mcp in settings.mcp.items()
    ]
    async with McpServers(servers, logs=settings.home / "logs") as connected:
        for problem in connected.problems:
            logger.warning("%s; its tools are not there", problem)
        yield Toolbox([*tools, *connected.tools()])
