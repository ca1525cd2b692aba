"""Puts an engine together from the settings: which model, which tools, which limits."""

import asyncio
import logging
import random
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

import holdfast
from holdfast.clock import SystemClock
from holdfast.engine.ask import Asking
from holdfast.engine.bus import Bus
from holdfast.engine.coordinator import Coordinator
from holdfast.engine.engine import Engine
from holdfast.engine.hand import Ground
from holdfast.engine.heartbeat import Heartbeat
from holdfast.engine.janitor import Janitor, Pace
from holdfast.engine.liveness import identity
from holdfast.engine.together import stop
from holdfast.engine.toolcall import Acting
from holdfast.engine.turn import Playing
from holdfast.model.asking import Delta, Provider, Reply, Request, Restarted
from holdfast.model.event import Event, SessionOpened
from holdfast.model.ids import WORKER, Ids
from holdfast.model.session import Session
from holdfast.providers import choose
from holdfast.providers.retry import Candidate, ask_with_retries
from holdfast.settings import Settings
from holdfast.store import workers
from holdfast.store.database import Database
from holdfast.tools.builtin import builtin
from holdfast.tools.recall import Recall
from holdfast.tools.registry import Toolbox

logger = logging.getLogger(__name__)

SYSTEM = Path(__file__).parent / "engine" / "system.md"
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

    async def ask(self, request: Request) -> AsyncIterator[Delta | Restarted | Reply]:
        """Ask the request's model, written as `provider:name`, and those that stand in for it."""
        names = dict.fromkeys((request.model, *self._settings.fallback_models))
        candidates = [self.candidate(name) for name in names]
        async with aclosing(ask_with_retries(candidates, request, sleep=asyncio.sleep, chance=random.random)) as stream:
            async for item in stream:
                yield item

    async def close(self) -> None:
        for provider in self._providers.values():
            await provider.close()


@asynccontextmanager
async def open_engine(
    database: Database, settings: Settings, environment: Mapping[str, str], *, kind: str, sweeps: bool = False
) -> AsyncIterator[Engine]:
    """An engine on the store, known there as a worker of that kind until it is closed."""
    clock = SystemClock()
    ids = Ids(clock.now)
    ours = identity()
    ground = Ground(database, clock, ids, Bus(), ids.make(WORKER))
    await database.write(workers.register, ground.worker_id, kind, ours, version=holdfast.__version__, at=clock.now())
    models = Models(settings)
    async with _toolbox(database, settings, environment) as toolbox:
        system = settings.agent.system or SYSTEM.read_text("utf-8")

        def prepare(session: Session, opened: Event) -> Playing:
            asking = Asking(session.summary.model or settings.model, system, models.ask, settings.agent.step_seconds)
            return Playing(
                asking,
                _acting(session, opened, toolbox, settings),
                settings.agent.max_steps,
                settings.agent.turn_seconds,
            )

        coordinator = Coordinator(ground, ours, prepare)
        engine = Engine(ground, coordinator, settings.model)
        janitor = Janitor(ground, ours, pace(settings), engine.take_up)
        try:
            async with Heartbeat(ground, settings.liveness.heartbeat_seconds, engine.declare_dead):
                sweeping = asyncio.create_task(janitor.work(), name="janitor") if sweeps else None
                try:
                    yield engine
                finally:
                    if sweeping is not None:
                        await stop(sweeping)
                    await engine.close()
        finally:
            await models.close()


def pace(settings: Settings) -> Pace:
    """When the janitor looks, and when silence means death."""
    return Pace(settings.liveness.stale_seconds, settings.liveness.sweep_seconds, settings.api.idle_minutes)


def _acting(session: Session, opened: Event, toolbox: Toolbox, settings: Settings) -> Acting:
    folder = opened.workdir if isinstance(opened, SessionOpened) else None
    attended = session.summary.source in ATTENDED
    return Acting(
        toolbox=toolbox,
        approvals=settings.agent.approvals,
        approval_seconds=None if attended else settings.agent.approval_seconds,
        step_seconds=settings.agent.turn_seconds,
        workdir=Path(folder) if folder else settings.home,
        files=settings.home / "files" / session.id,
    )


@asynccontextmanager
async def _toolbox(database: Database, settings: Settings, environment: Mapping[str, str]) -> AsyncIterator[Toolbox]:
    """The tools that come with Holdfast, and those of the configured MCP servers while they are connected."""
    secret = {access.api_key_env for access in settings.models.values()}
    environment = {name: value for name, value in environment.items() if name not in secret}
    tools = [*builtin(environment, home=settings.home), Recall(database)]
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
