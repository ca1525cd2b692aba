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
from holdfast.engine.engine import Engine
from holdfast.engine.janitor import Janitor
from holdfast.engine.together import stop
from holdfast.gateway.gateway import Gateway
from holdfast.identity import identity
from holdfast.processes.registry import Registry
from holdfast.settings import Settings

Started = Callable[[str, str], object]
"""Told the address and where the key is, once both can be used."""


async def serve(app: App, started: Started, stopping: asyncio.Event, descriptor: int | None = None) -> None:
    """Serve, at the address that is set or at a socket that we were given, until `stopping` is set, then drain. Raises what `Engine.death` fails with, should that come first.

    The order of a drain: nothing more is accepted; the engine finishes the step in hand of each turn, and tells those
    who watch that it leaves; their streams end with a proper last event; then the connections are closed.
    """
    settings = app.settings
    key = auth.obtain(settings)
    given = None if descriptor is None else server.inherited(descriptor)
    listener = given or server.listen(settings.api.host, settings.api.port)
    try:
        async with open_engine(app.database, settings, config.environment(), kind="serve", sweeps=True) as engine:
            house = _house(app, engine)
            desk = pages.desk(engine, app, key, house.leaving)
            api = create(house, key, Dashboard(desk, Door(key, app.database)), any_host=_is_hidden(listener))
            serving = server.Server(api, lambda: started(server.address(listener), _where(settings)))
            async with platforms_and_schedules(engine, app), pages.open_desk(desk):
                await _until(stopping, house, serving, listener)
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


async def _until(stopping: asyncio.Event, house: House, serving: server.Server, listener: socket.socket) -> None:
    engine = house.engine
    task = asyncio.ensure_future(serving.serve([listener]))
    bell = asyncio.ensure_future(stopping.wait())
    try:
        ends: set[asyncio.Future[object]] = {task, bell, engine.death}  # type: ignore[arg-type] # any result will do
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        serving.stop()
        if not engine.death.done():
            await engine.drain()
        house.leaving.set()
        await task
    finally:
        bell.cancel()
        house.leaving.set()
        serving.stop()
        await asyncio.wait({task})
    if engine.death.done():
        engine.death.result()
