"""Builds the server worker: an engine with a janitor, behind the API and the dashboard."""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import cache, partial

from holdfast import config
from holdfast import http_server as server
from holdfast.api import metrics
from holdfast.api.app import create_app
from holdfast.api.context import ApiContext
from holdfast.api.models import ModelList
from holdfast.api.transport import auth
from holdfast.cron import Cron
from holdfast.engine.engine import DRAIN_SECONDS, Engine
from holdfast.engine.liveness.janitor import Janitor
from holdfast.engine.liveness.shutdown import SERVING
from holdfast.gateway.gateway import Gateway
from holdfast.http_connection import raise_descriptor_limit
from holdfast.model.errors import HoldfastError
from holdfast.process_lookup import current_identity
from holdfast.process_slots import ProcessSlot
from holdfast.processes.registry import ProcessRegistry
from holdfast.settings import Settings
from holdfast.tasks import running, wait_for_first
from holdfast.wiring import dashboard, telemetry
from holdfast.wiring.compaction import context_window
from holdfast.wiring.engine import janitor_settings, open_engine
from holdfast.wiring.store import App
from holdfast.wiring.transcription import open_transcriber

STORE_SECONDS = 5.0
"""Time limit of the query for other workers."""
POLL_SECONDS = 1.0
Started = Callable[[str, str], object]
"""Called with the address and the location of the key when the server is ready."""


def open_address(settings: Settings, descriptor: int | None) -> tuple[int, str, str]:
    """Open the socket and create the key for processes that are forked later: the socket, its address, where the key is."""
    auth.load_or_create_key(settings)
    listener = _listen(settings, descriptor)
    address = server.listener_address(listener)
    return listener.detach(), address, auth.key_location(settings)


async def serve(
    app: App,
    started: Started,
    stopping: asyncio.Event,
    descriptor: int | None = None,
    slot: ProcessSlot | None = None,
) -> None:
    """Serve at the configured address or an inherited socket until `stopping` is set, then drain. Raises what `Engine.death` fails with if that comes first.

    The order of a drain: stop accepting; the engine finishes the current step of each turn; stop schedules and platforms.
    If another worker serves the store, it continues the turns, and clients waiting here still receive them for a while.
    Then streams end with a proper last event, and connections are closed.
    """
    settings = app.settings
    key = auth.load_or_create_key(settings)
    limits = raise_descriptor_limit()
    listener = _listen(settings, descriptor)
    try:
        async with open_engine(
            app.database, settings, config.environment(), supervisor=app.supervisor, kind=SERVING, sweeps=True
        ) as engine:
            context = _api_context(app, engine, slot)
            pages = dashboard.make_context(engine, app, context.leaving)
            api = create_app(context, key, dashboard.LazyDashboard(pages, key), any_host=_is_unix_socket(listener))
            serving = server.HttpServer(
                api,
                lambda: started(server.listener_address(listener), auth.key_location(settings)),
                limits,
                slot,
                max_message=settings.api.max_body_mb * 2**20,
            )
            async with (
                dashboard.run_background_tasks(pages),
                engine.supervisor.running({**metrics.tasks(context), **telemetry.tasks(app, engine)}),
                _running(serving, listener, context) as task,
            ):
                async with run_platforms_and_schedules(engine, app):
                    await _until(stopping, task, engine)
                    successors = await _drain(engine, serving, task, settings.api.handover_seconds)
                context.leaving.set()
                if successors:
                    await _wait_for_clients(engine, task, settings.api.handover_seconds)
                await task
            if engine.death.done():
                engine.death.result()
    finally:
        listener.close()


def _listen(settings: Settings, descriptor: int | None) -> socket.socket:
    if descriptor is not None:
        return server.adopt_socket(descriptor)
    return server.listen(settings.api.host, settings.api.port)


def _api_context(app: App, engine: Engine, slot: ProcessSlot | None) -> ApiContext:
    settings = app.settings
    assert isinstance(engine.processes, ProcessRegistry), "open_engine sets it"
    janitor = Janitor(
        engine.services, current_identity(), janitor_settings(settings), engine.take_up, engine.sweep_steps
    )
    return ApiContext(
        engine,
        app.database,
        settings,
        ModelList(settings),
        search=app.search,
        processes=engine.processes,
        sweep=janitor.sweep,
        window=cache(partial(context_window, settings)),
        slot=slot,
    )


@asynccontextmanager
async def run_platforms_and_schedules(engine: Engine, app: App) -> AsyncIterator[None]:
    """Run messaging platforms and schedules."""
    tz = config.environment().get("TZ", "")
    cron = Cron(engine, app.settings.model, tz)
    async with open_transcriber(app.settings) as transcriber:
        gateway = Gateway(engine, app.settings, app.search, transcriber=transcriber)
        async with engine.supervisor.running({"cron": cron.as_task(), **gateway.tasks()}):
            yield


def _is_unix_socket(listener: socket.socket) -> bool:
    """Return whether it is a Unix socket, which no browser can reach."""
    return listener.family == socket.AF_UNIX


@asynccontextmanager
async def _running(
    serving: server.HttpServer, listener: socket.socket, context: ApiContext
) -> AsyncIterator["asyncio.Future[None]"]:
    """Run the server; it has ended completely on exit, whatever went wrong."""
    async with running(serving.serve([listener])) as (task,):
        try:
            yield task
        finally:
            context.leaving.set()
            serving.stop()
            await asyncio.wait({task})
            await context.probe.close()


async def _until(stopping: asyncio.Event, task: "asyncio.Future[None]", engine: Engine) -> None:
    """Wait until a stop is requested, the server has ended, or this worker was declared dead."""
    async with running(stopping.wait()) as (asked,):
        await wait_for_first(task, asked, engine.death)


async def _drain(
    engine: Engine, serving: server.HttpServer, task: "asyncio.Future[None]", handover_seconds: float
) -> bool:
    """Stop accepting and drain the engine; return whether another worker continues the turns."""
    successors = not engine.death.done() and handover_seconds > 0 and await _has_successors(engine, announce=True)
    serving.stop(DRAIN_SECONDS + handover_seconds if successors else 0)
    async with running(serving.accepting_stopped.wait()) as (accepting_stopped,):
        await wait_for_first(accepting_stopped, task)
    if engine.death.done():
        return False
    await engine.drain(handing_over=successors)
    return successors


async def _has_successors(engine: Engine, *, announce: bool = False) -> bool:
    try:
        async with asyncio.timeout(STORE_SECONDS):
            if announce:
                await engine.shutdown.announce()
            return bool(await engine.shutdown.find_successors())
    except (HoldfastError, TimeoutError):
        return False  # no worker can continue if the store is unreachable


async def _wait_for_clients(engine: Engine, task: "asyncio.Future[None]", seconds: float) -> None:
    """Stay for clients that wait here for turns of other workers, while there are such workers."""
    end = engine.services.clock.monotonic() + seconds
    while not task.done() and engine.services.clock.monotonic() < end and await _has_successors(engine):
        await asyncio.wait({task}, timeout=POLL_SECONDS)
    engine.shutdown.disconnect_watchers()
