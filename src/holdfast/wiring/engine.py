"""Builds an engine from the settings: models, tools and limits."""

import logging
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, tzinfo
from functools import cache, partial
from pathlib import Path

import msgspec

import holdfast
from holdfast.clock import load_zone
from holdfast.engine.auto_titles import Titles
from holdfast.engine.compaction.compact import CompactionSettings
from holdfast.engine.compaction.summarize import SummaryAuthor
from holdfast.engine.context.budget import DEFAULT_WINDOW
from holdfast.engine.engine import Engine
from holdfast.engine.explain import ExplainSettings
from holdfast.engine.goals.actions import GoalLimits
from holdfast.engine.liveness import self_fence
from holdfast.engine.liveness.dead_workers import DeadWorkers
from holdfast.engine.liveness.heartbeat import Heartbeat
from holdfast.engine.liveness.janitor import Janitor, JanitorSettings, SweepAction, SweepStep
from holdfast.engine.liveness.ownership import OwnedSessions
from holdfast.engine.liveness.self_fence import SelfFence
from holdfast.engine.reset.policy import ResetPolicies, ResetPolicy
from holdfast.engine.reset.reset import Resets
from holdfast.engine.scheduler import Prepare, Scheduler
from holdfast.engine.services import EngineServices
from holdfast.engine.spending.meter import Meter, SpendingLimits
from holdfast.engine.streaming.bus import Bus
from holdfast.engine.turn.call_host import CallModelSettings
from holdfast.engine.turn.loop import GoalCheckSettings, TurnSettings
from holdfast.engine.turn.model_call import ModelCallSettings
from holdfast.model.delegation import delegation_of
from holdfast.model.errors import Unavailable
from holdfast.model.event import Delegation, Event
from holdfast.model.framework.item import CHANNEL
from holdfast.model.ids import WORKER, Ids
from holdfast.model.price import Price, to_nano
from holdfast.model.secret_names import without_secrets
from holdfast.model.session import Session
from holdfast.model.times import Clock
from holdfast.process_lookup import current_identity
from holdfast.processes.foreground import ForegroundCommands
from holdfast.processes.registry import ProcessChange, ProcessRegistry, open_registry
from holdfast.providers import registry as choose
from holdfast.providers.prices import load_prices
from holdfast.providers.router import ModelRouter
from holdfast.settings import BudgetSettings, PriceSettings, ResetRule, Settings
from holdfast.store.database import Database
from holdfast.store.repos import workers
from holdfast.store.server_clock import READ_SECONDS, LocalClock, ServerClock, open_clock
from holdfast.store.spending import usage
from holdfast.supervisor import BackgroundTask, Supervisor
from holdfast.tools.backends import private_tmp
from holdfast.tools.backends.container import ContainerBackend
from holdfast.tools.file_restorer import FileRestorer
from holdfast.tools.toolbox import Toolbox
from holdfast.wiring.instructions import InstructedSession, SessionInstructions, with_skills
from holdfast.wiring.memory import StoredMemory
from holdfast.wiring.tools import ATTENDED_SOURCES, SessionTools, open_tools, session_terminal, tool_call_settings

SessionToolbox = Callable[[str, Toolbox], Toolbox]
"""Returns the tools of a session, by its id, given those of all sessions."""
logger = logging.getLogger(__name__)
SYSTEM_PROMPT = Path(__file__).parents[1] / "engine" / "context" / "system.md"
NO_TITLE_PROVIDERS = ("local", "scripted")
"""Providers whose models write poor titles: their sessions are titled with the first words."""
LOCAL_SUMMARY_WINDOW = 2_048
"""Tokens that a local model on a busy CPU can summarise well within the time limit."""
MIN_SECRET = 8
"""Shorter secrets match too many other texts by chance."""


def compaction_settings(settings: Settings, router: ModelRouter, model: str) -> CompactionSettings:
    """How the contexts of a model's sessions are compacted."""
    given = settings.context
    authors = (given.summary_model or model, model, *settings.fallback_models)

    def author_window(name: str) -> int:
        """How much a model that writes a summary is given to read at once."""
        window = (given.window if name == model else None) or router.window(name) or DEFAULT_WINDOW
        return min(window, LOCAL_SUMMARY_WINDOW) if name.startswith("local:") else window

    return CompactionSettings(
        window=given.window or router.window(model) or DEFAULT_WINDOW,
        compact_at=given.compact_at,
        keep_last=given.keep_last,
        author=SummaryAuthor(
            models=tuple(dict.fromkeys(authors)),
            ask=router.ask_alone,
            window_of=author_window,
            timeout_seconds=given.summary_timeout_seconds,
            on_failure=given.on_summary_failure,
        ),
    )


@asynccontextmanager
async def open_engine(
    database: Database,
    settings: Settings,
    environment: Mapping[str, str],
    *,
    kind: str,
    sweeps: bool = False,
    attended: bool = False,
    leaves_queue: bool = False,
    supervisor: Supervisor | None = None,
    session_tools: SessionToolbox | None = None,
) -> AsyncIterator[Engine]:
    """Open an engine, registered in the store as a worker of that kind until it is closed.

    With `attended`, a person answers questions in place, so they have no time limit. With `leaves_queue`, the engine
    runs only its own turns, and leaves input that others have queued. `session_tools` returns the tools of a session, given
    those of all.
    """
    clock = await open_clock(database)
    ids = Ids(clock.now)
    ours = current_identity()
    services = EngineServices(database, clock, ids, Bus(), ids.make(WORKER), ours, settings.agent.mode)
    await database.write(workers.register, services.worker_id, kind, ours, version=holdfast.__version__, at=clock.now())
    prices = load_prices(settings.home, {name: _price(given) for name, given in settings.prices.items()})
    models = ModelRouter(settings, prices.find)
    meter = Meter(services, spending_limits(settings.budget), prices.find)
    environment = _without_secrets(settings, environment)
    registry = open_registry(database, settings, without_secrets(environment), clock=clock, ours=ours)
    foreground = ForegroundCommands(database, registry, settings.home, ours)
    async with open_tools(
        services, settings, environment, registry, foreground, context_window(settings, settings.model)
    ) as tools:
        prepare = _prepare_turns(
            database,
            settings,
            models,
            meter,
            tools,
            session_tools,
            (clock, environment.get("TZ", "")),
            attended=attended,
        )
        scheduler = Scheduler(services, prepare, adopt=foreground.adopt)
        engine = _build_engine(
            services,
            scheduler,
            settings,
            models,
            meter,
            registry,
            tools,
            environment.get("TZ", ""),
            supervisor,
            leaves_queue=leaves_queue,
        )
        try:
            async with _running(engine, scheduler, registry, settings, clock, sweeps=sweeps):
                yield engine
        finally:
            await models.close()


def _build_engine(
    services: EngineServices,
    scheduler: Scheduler,
    settings: Settings,
    models: ModelRouter,
    meter: Meter,
    registry: ProcessRegistry,
    tools: SessionTools,
    tz: str,
    supervisor: Supervisor | None,
    *,
    leaves_queue: bool,
) -> Engine:
    """Build the engine with its resets, titles and explanations. `tz` is the variable TZ."""
    owned = OwnedSessions(services, DeadWorkers(services))
    resets = Resets(
        services,
        owned,
        reset_policies(settings, tz),
        registry,
        on_reset=settings.processes.on_reset,
        home=settings.gateway.home_channel,
    )
    return Engine(
        services,
        scheduler,
        settings.model,
        supervisor=supervisor,
        owned=owned,
        resets=resets,
        titles=Titles(services, models.ask, _titled_by_first_words, meter) if settings.agent.titles else None,
        processes=registry,
        explain=explain_settings(settings, services.clock, tz, has_bubblewrap=tools.has_bubblewrap),
        sweep_steps=(
            _refresh_processes(registry),
            _clean_terminals(services.database, tools.containers, settings.home),
            resets.sweep,
            _sum_up_usage(services.database),
        ),
        meter=meter,
        compaction=partial(compaction_settings, settings, models),
        leaves_queue=leaves_queue,
        tool_names=[spec.name for spec in tools.toolbox.specs],
        files=FileRestorer(settings.home, tools.snapshots),
        goal_limits=GoalLimits(
            max_turns=settings.goals.max_turns, max_hours=settings.goals.max_hours, max_cost=settings.goals.max_cost
        ),
    )


@asynccontextmanager
async def _running(
    engine: Engine,
    scheduler: Scheduler,
    registry: ProcessRegistry,
    settings: Settings,
    clock: LocalClock | ServerClock,
    *,
    sweeps: bool,
) -> AsyncIterator[None]:
    """Run the heartbeat and the background tasks of the engine during the block, and close the engine after it."""
    services = engine.services
    janitor = Janitor(services, services.identity, janitor_settings(settings), engine.take_up, engine.sweep_steps)
    async with Heartbeat(
        services, settings.liveness.heartbeat_seconds, engine.declare_dead, engine.supervisor
    ) as heartbeat:
        # The first turn reports processes that ended while no worker ran.
        await registry.try_refresh()
        fence = SelfFence(scheduler, heartbeat, _silence(settings), clock)
        tasks = {
            "processes": registry.as_task(),
            "guard": BackgroundTask(fence.watch, self_fence.CHECK_SECONDS),
            "session return": BackgroundTask(fence.release_leases, self_fence.CHECK_SECONDS),
            "clock": BackgroundTask(clock.work, READ_SECONDS),
            "delegation": engine.delegation.as_task(),
            "goals": engine.goal_watch.as_task(),
        }
        if sweeps:
            tasks["janitor"] = janitor.as_task()
        try:
            async with engine.supervisor.running(tasks):
                yield
        finally:
            await engine.close()


def _silence(settings: Settings) -> float | None:
    """Return how long a worker may fail to reach a shared store before it stops itself; None for a local store."""
    return None if settings.store_path is not None else self_fence.limit(settings.liveness.stale_seconds)


def spending_limits(given: BudgetSettings) -> SpendingLimits:
    """Build the limits of spending in nano-dollars."""
    session, day, user = (None if one is None else to_nano(one) for one in (given.session, given.day, given.user))
    return SpendingLimits(
        session=session,
        day=day,
        user=user,
        users={name: to_nano(limit) for name, limit in given.users.items()},
        allows_unpriced=given.unpriced == "allow",
        reply_tokens=given.reply_tokens,
    )


def _price(given: PriceSettings) -> Price:
    return Price(**msgspec.structs.asdict(given))


def _sum_up_usage(database: Database) -> SweepStep:
    """Return the sweep step that sums up the newest usage."""

    async def chore() -> list[SweepAction]:
        await usage.catch_up(database)
        return []

    return chore


def _prepare_turns(
    database: Database,
    settings: Settings,
    models: ModelRouter,
    meter: Meter,
    tools: SessionTools,
    session_tools: SessionToolbox | None,
    clock: tuple[Clock, str],
    *,
    attended: bool,
) -> Prepare:
    """Return the function that chooses the settings of a session's turns. `clock` is the clock with the variable TZ."""
    system = settings.agent.system or SYSTEM_PROMPT.read_text("utf-8")
    compaction = cache(partial(compaction_settings, settings, models))
    zone = cache(partial(_zone_for_dates, settings.reset.timezone, clock[1]))

    def prepare(session: Session, opened: Event) -> TurnSettings:
        model = session.summary.model or settings.model
        link = delegation_of(session, opened)
        window = compaction(model).window
        toolbox = tools.toolbox
        if session.summary.source in settings.agent.rules:
            toolbox = with_skills(toolbox, settings.home, window)
        if session_tools is not None:
            toolbox = session_tools(link.root_id or session.id, toolbox)
        own = msgspec.structs.replace(tools, toolbox=toolbox)
        tool_calls = msgspec.structs.replace(
            tool_call_settings(session, opened, own, settings, attended=attended),
            model=CallModelSettings(model, models.ask, settings.agent.step_seconds, meter),
        )
        told = InstructedSession(
            source=session.summary.source,
            system=system,
            workdir=tool_calls.workdir,
            terminal=tool_calls.terminal,
            window=window,
            memory=None if tool_calls.memory is None else StoredMemory(database, tool_calls.memory.project),
        )
        return TurnSettings(
            ModelCallSettings(
                model,
                system,
                models.ask,
                settings.agent.step_seconds,
                meter,
                meter.limits.are_set,
                attended and settings.agent.approvals != "deny" and _is_operators(session, link),
            ),
            tool_calls,
            min(link.max_steps or settings.agent.max_steps, settings.agent.max_steps),
            settings.agent.turn_seconds,
            compaction(model),
            link.max_tokens,
            SessionInstructions(settings, clock[0], zone, told).loader,
            GoalCheckSettings(settings.goals.check_model or model, models.ask, settings.goals.check_attempts),
        )

    return prepare


def _is_operators(session: Session, link: Delegation) -> bool:
    """Return whether the operator works in the session, or in the one that delegated to it: not the user of a platform."""
    return (link.root_source or session.summary.source) not in ATTENDED_SOURCES


def _zone_for_dates(name: str, tz: str) -> tzinfo | None:
    """Return the time zone of dates for the model; None for the machine's, because time zones load slowly."""
    return None if name == "local" else load_zone(name, tz)


def _titled_by_first_words(model: str) -> bool:
    """Return whether sessions of the model get their first words as the title."""
    return choose.parse(model).provider in NO_TITLE_PROVIDERS


def _without_secrets(settings: Settings, environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment without variables that are configured as secret or contain a configured secret."""
    names = {service.api_key_env for service in settings.services}
    secrets = [text for text in settings.secrets() if len(text) >= MIN_SECRET]
    return {
        name: value
        for name, value in environment.items()
        if name not in names and not any(secret in value for secret in secrets)
    }


def context_window(settings: Settings, model: str) -> int:
    """Return the context window of sessions with that model in tokens."""
    return compaction_settings(settings, ModelRouter(settings), model or settings.model).window


def explain_settings(settings: Settings, clock: Clock, tz: str, *, has_bubblewrap: bool) -> ExplainSettings:
    """Build the settings of session explanations. `tz` is the variable TZ."""
    return ExplainSettings(
        clock=clock,
        idle_minutes=settings.api.idle_minutes,
        compact_at=settings.context.compact_at,
        window=cache(partial(context_window, settings)),
        policies=reset_policies(settings, tz),
        terminal=partial(session_terminal, settings=settings, has_bubblewrap=has_bubblewrap),
    )


def _refresh_processes(registry: ProcessRegistry) -> SweepStep:
    """Return the sweep step that refreshes all processes."""

    async def chore() -> list[SweepAction]:
        return [
            SweepAction(f"process {change.what}", session_id=change.process.session_id, evidence=_evidence(change))
            for change in await registry.refresh()
        ]

    return chore


def _clean_terminals(database: Database, containers: ContainerBackend, home: Path) -> SweepStep:
    """Return the sweep step that removes the containers and temporary files that no session needs. Failures are logged."""

    async def chore() -> list[SweepAction]:
        try:
            await private_tmp.remove_unused(home, database)
        except OSError as e:
            logger.warning("cannot remove the temporary files of an ended session: %s", e)
        try:
            done = await containers.remove_unused()
        except Unavailable as e:
            logger.warning("cannot check the containers: %s", e)
            return []
        return [SweepAction("container", session_id=session_id, evidence=what) for session_id, what in done]

    return chore


def _evidence(change: ProcessChange) -> str:
    return f"{change.process.id}: {change.evidence}"


def reset_policies(settings: Settings, tz: str) -> ResetPolicies:
    """Build the reset policy of each channel. `tz` is the variable TZ."""
    every = settings.reset

    def policy(rule: ResetRule) -> ResetPolicy:
        mode = rule.mode or every.mode
        # Only a daily reset has an hour, and time zones load slowly.
        zone = load_zone(rule.timezone or every.timezone, tz) if mode in ("daily", "both") else UTC
        return ResetPolicy(
            mode,
            rule.idle_minutes or every.idle_minutes,
            every.at_hour if rule.at_hour is None else rule.at_hour,
            zone,
        )

    frameworks = policy(ResetRule(mode="none"))  # another framework's session never becomes empty by itself
    channels = {name: policy(rule) for name, rule in every.channels.items()}
    return ResetPolicies(policy(ResetRule()), {CHANNEL: frameworks} | channels)


def janitor_settings(settings: Settings) -> JanitorSettings:
    """Build the settings of the janitor: sweep interval and heartbeat timeout."""
    return JanitorSettings(settings.liveness.stale_seconds, settings.liveness.sweep_seconds, settings.api.idle_minutes)
