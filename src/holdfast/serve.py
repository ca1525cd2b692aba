"""Puts the long-lived worker together: an engine that sweeps, and the API and the dashboard in front of it."""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import cache, partial

from holdfast import config, pages
from holdfast.api import auth, server
from holdfast.api.app import create
from holdfast.api.house import House
from holdfast.api.listing import Listing
from holdfast.app import App
from holdfast.assemble import open_engine, pace, window
from holdfast.cron import Cron
from holdfast.dashboard.app import Dashboard
from holdfast.dashboard.door import Door
from holdfast.engine.departure import SERVING
from holdfast.engine.engine import DRAIN_SECONDS, Engine
from holdfast.engine.janitor import Janitor
from holdfast.engine.together import stop
from holdfast.gateway.gateway import Gateway
from holdfast.identity import identity
from holdfast.model.errors import HoldfastError
from holdfast.processes.registry import Registry
from holdfast.settings import Settings

ASK_SECONDS = 5.0
"""How long the store may take to say who else is there."""
LOOK_SECONDS = 1.0
Started = Callable[[str, str], object]
"""Told the address and where the key is, once both can be used."""


async def serve(app: App, started: Started, stopping: asyncio.Event, descriptor: int | None = None) -> None:
    """Serve, at the address that is set or at a socket that we were given, until `stopping` is set, then drain. Raises what `Engine.death` fails with, should that come first.

    The order of a drain: nobody comes in any more; the engine finishes the step in hand of each turn; schedules and
    platforms are left to others. If another worker serves the store it goes on with the turns, and clients who wait for
    one here are told of it to its end, for a while. Then streams end with a proper last event, and connections are closed.
    """
    settings = app.settings
    key = auth.obtain(settings)
    given = None if descriptor is None else server.inherited(descriptor)
    listener = given or server.listen(settings.api.host, settings.api.port)
    try:
        async with open_engine(app.database, settings, config.environment(), kind=SERVING, sweeps=True) as engine:
            house = _house(app, engine)
            desk = pages.desk(engine, app, key, house.leaving)
            api = create(house, key, Dashboard(desk, Door(key, app.database)), any_host=_is_hidden(listener))
            serving = server.Server(api, lambda: started(server.address(listener), _where(settings)))
            async with pages.open_desk(desk), _running(serving, listener, house) as task:
                async with platforms_and_schedules(engine, app):
                    await _until(stopping, task, engine)
                    heirs = await _drain(engine, serving, task, settings.api.handover_seconds)
                house.leaving.set()
                if heirs:
                    await _see_off(engine, task, settings.api.handover_seconds)
                await task
            if engine.death.done():
                engine.death.result()
    finally:
        listener.close()


def _house(app: App, engine: Engine) -> House:
    settings = app.settings
    assert isinstance(engine.processes, Registry), "every engine that is put together has one"
    janitor = Janitor(engine.ground, identity(), pace(settings), engine.take_up, engine.chores)
    return House(
        engine,
        app.database,
        settings,
        Listing(settings),
        config.workdir(),
        search=app.search,
        processes=engine.processes,
        sweep=janitor.sweep,
        window=cache(partial(window, settings)),
    )


@asynccontextmanager
async def platforms_and_schedules(engine: Engine, app: App) -> AsyncIterator[None]:
    """While this lasts, messaging platforms are served and schedules kept."""
    tz = config.environment().get("TZ", "")
    gateway = Gateway(engine, app.settings, app.search)
    tasks = [asyncio.create_task(Cron(engine, app.settings.model, tz).work(), name="cron")]
    if app.settings.gateway.platforms:
        tasks.append(asyncio.create_task(gateway.work(), name="gateway"))
    try:
        yield
    finally:
        await stop(*tasks)


def _is_hidden(listener: socket.socket) -> bool:
    """Whether only programs of this machine can reach it, and no browser."""
    return listener.family == socket.AF_UNIX


def _where(settings: Settings) -> str:
    return "as set" if settings.api.key is not None else f"in {auth.key_file(settings)}"


@asynccontextmanager
async def _running(
    serving: server.Server, listener: socket.socket, house: House
) -> AsyncIterator["asyncio.Future[None]"]:
    """The server, as long as it runs; at the end nothing of it is left, whatever went wrong."""
    task = asyncio.ensure_future(serving.serve([listener]))
    try:
        yield task
    finally:
        house.leaving.set()
        serving.stop()
        await asyncio.wait({task})


async def _until(stopping: asyncio.Event, task: "asyncio.Future[None]", engine: Engine) -> None:
    """Wait until it is time to stop: somebody asks for it, the server has ended, or this worker was declared dead."""
    bell = asyncio.ensure_future(stopping.wait())
    try:
        ends: set[asyncio.Future[object]] = {task, bell, engine.death}  # type: ignore[arg-type] # any result will do
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
    finally:
        bell.cancel()


async def _drain(engine: Engine, serving: server.Server, task: "asyncio.Future[None]", handover_seconds: float) -> bool:
    """Close the doors, and leave what is in hand; whether another worker goes on with it."""
    heirs = not engine.death.done() and handover_seconds > 0 and await _has_heirs(engine, announce=True)
    serving.stop(DRAIN_SECONDS + handover_seconds if heirs else 0)
    doors = asyncio.ensure_future(serving.doors_closed.wait())
    either: set[asyncio.Future[object]] = {doors, task}  # type: ignore[arg-type] # any result will do
    await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
    doors.cancel()
    if engine.death.done():
        return False
    await engine.drain(handing_over=heirs)
    return heirs


async def _has_heirs(engine: Engine, *, announce: bool = False) -> bool:
    try:
        async with asyncio.timeout(ASK_SECONDS):
            if announce:
                await engine.departure.announce()
            return bool(await engine.departure.heirs())
    except (HoldfastError, TimeoutError):
        return False  # nobody can go on in a store that cannot be reached


async def _see_off(engine: Engine, task: "asyncio.Future[None]", seconds: float) -> None:
    """Stay for those who wait here for turns that others play, as long as there is somebody to play them."""
    end = engine.ground.clock.monotonic() + seconds
    while not task.done() and engine.ground.clock.monotonic() < end and await _has_heirs(engine):
        await asyncio.wait({task}, timeout=LOOK_SECONDS)
    engine.departure.dismiss()
