"""Builds an engine from the settings: models, tools and limits."""

import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import UTC
from functools import cache, partial

import msgspec

import holdfast
from holdfast.clock import load_zone
from holdfast.engine.admission.admit import API, caller_id
from holdfast.engine.auto_titles import Titles
from holdfast.engine.engine import Engine
from holdfast.engine.explain import ExplainSettings
from holdfast.engine.goals.actions import GoalLimits
from holdfast.engine.liveness import self_fence
from holdfast.engine.liveness.dead_workers import DeadWorkers
from holdfast.engine.liveness.heartbeat import Heartbeat
from holdfast.engine.liveness.janitor import Janitor, JanitorSettings
from holdfast.engine.liveness.ownership import OwnedSessions
from holdfast.engine.liveness.self_fence import SelfFence
from holdfast.engine.reset.policy import ResetPolicies, ResetPolicy
from holdfast.engine.reset.reset import Resets
from holdfast.engine.scheduler import Scheduler
from holdfast.engine.services import EngineServices
from holdfast.engine.spending.meter import Meter, SpendingLimits
from holdfast.engine.streaming.bus import Bus
from holdfast.model.framework.item import CHANNEL
from holdfast.model.ids import WORKER, Ids
from holdfast.model.price import Price, to_nano
from holdfast.model.secret_names import without_secrets
from holdfast.model.times import Clock
from holdfast.process_lookup import current_identity
from holdfast.processes.foreground import ForegroundCommands
from holdfast.processes.registry import ProcessRegistry, open_registry
from holdfast.providers import registry as choose
from holdfast.providers.prices import load_prices
from holdfast.providers.router import ModelRouter
from holdfast.settings import BudgetSettings, PriceSettings, ResetRule, Settings
from holdfast.store.database import Database
from holdfast.store.repos import workers
from holdfast.store.server_clock import READ_SECONDS, LocalClock, ServerClock, open_clock
from holdfast.supervisor import BackgroundTask, Supervisor
from holdfast.tools.file_restorer import FileRestorer
from holdfast.wiring.compaction import compaction_settings, context_window
from holdfast.wiring.sweep_steps import clean_terminals, refresh_processes, sum_up_usage
from holdfast.wiring.tools import open_tools, session_terminal
from holdfast.wiring.turns import SessionToolbox, TurnParts, TurnPreparation

NO_TITLE_PROVIDERS = ("local", "scripted")
"""Providers whose models write poor titles: their sessions are titled with the first words."""
HASHED = re.compile(r"[0-9a-f]{16}|")
"""What follows `api:` in the id of a user of the API."""
MIN_SECRET = 8
"""Shorter secrets match too many other texts by chance."""


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
    window = context_window(settings, settings.model)
    async with open_tools(services, settings, environment, registry, foreground, window) as tools:
        parts = TurnParts(
            database=database,
            settings=settings,
            models=models,
            meter=meter,
            tools=tools,
            session_tools=session_tools,
            clock=clock,
            tz=environment.get("TZ", ""),
            attended=attended,
        )
        scheduler = Scheduler(services, TurnPreparation(parts), adopt=foreground.adopt)
        engine = _build_engine(services, scheduler, parts, registry, supervisor, leaves_queue=leaves_queue)
        try:
            async with _running(engine, scheduler, registry, settings, clock, sweeps=sweeps):
                yield engine
        finally:
            await models.close()


def _build_engine(
    services: EngineServices,
    scheduler: Scheduler,
    parts: TurnParts,
    registry: ProcessRegistry,
    supervisor: Supervisor | None,
    *,
    leaves_queue: bool,
) -> Engine:
    """Build the engine with its resets, titles and explanations."""
    settings, tools, meter = parts.settings, parts.tools, parts.meter
    owned = OwnedSessions(services, DeadWorkers(services))
    resets = Resets(
        services,
        owned,
        reset_policies(settings, parts.tz),
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
        titles=Titles(services, parts.models.ask, _titled_by_first_words, meter) if settings.agent.titles else None,
        processes=registry,
        explain=explain_settings(settings, services.clock, parts.tz, has_bubblewrap=tools.has_bubblewrap),
        sweep_steps=(
            refresh_processes(registry),
            clean_terminals(services.database, tools.containers, settings.home),
            resets.sweep,
            sum_up_usage(services.database),
        ),
        meter=meter,
        compaction=partial(compaction_settings, settings, parts.models),
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
        users={_user_id(name): to_nano(limit) for name, limit in given.users.items()},
        allows_unpriced=given.unpriced == "allow",
        reply_tokens=given.reply_tokens,
    )


def _user_id(name: str) -> str:
    """Return the id of a user: the log has a hash of the name that an API request gives, which may be a person's address."""
    who = name.removeprefix(API)
    return name if who == name or HASHED.fullmatch(who) else caller_id(who)


def _price(given: PriceSettings) -> Price:
    return Price(**msgspec.structs.asdict(given))


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
