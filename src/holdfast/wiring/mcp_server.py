"""Builds the MCP server: an engine with a janitor, behind standard input and output or a port of this machine."""

import asyncio
import importlib.util
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from starlette.types import ASGIApp

from holdfast import config
from holdfast import http_server as web
from holdfast.api.app import REQUEST_ID_PREFIX
from holdfast.api.context import RequestCounter
from holdfast.api.transport import auth
from holdfast.api.transport.middleware import AccessRules, RequestMiddleware
from holdfast.engine.engine import Engine
from holdfast.http_connection import raise_descriptor_limit
from holdfast.installation import command_to_add
from holdfast.model.errors import Unsupported
from holdfast.tasks import running
from holdfast.wiring.engine import open_engine
from holdfast.wiring.run_until_stopped import run_until_stopped
from holdfast.wiring.store import App

KIND = "mcp"
"""The kind of worker in the store."""
HOST = "127.0.0.1"

Announce = Callable[[str, str], object]
"""Called with the address and the location of the key when the server is ready."""


def require_library() -> None:
    """Raise Unsupported if the MCP library is not installed."""
    if importlib.util.find_spec("mcp") is None:
        raise Unsupported(f"the MCP library is not installed; run: {command_to_add('mcp')}")


async def serve_stdio(app: App, stopping: asyncio.Event) -> None:
    """Serve the client that started this process. When it leaves, finish the running turns; a signal leaves them open.

    Raises what `Engine.death` fails with if that comes first.
    """
    from holdfast.mcp_server import stdio
    from holdfast.mcp_server.calls import SessionCalls
    from holdfast.mcp_server.server import create_server

    async with _open_engine(app) as engine:
        server = create_server(SessionCalls(engine, app.search, config.workdir()))
        await run_until_stopped(stdio.serve(server, max_bytes=_max_bytes(app)), stopping, engine)
        if not stopping.is_set():
            await run_until_stopped(engine.settled(), stopping, engine)
        await engine.drain()


async def serve_http(app: App, port: int, announce: Announce, stopping: asyncio.Event) -> None:
    """Serve clients of this machine that have the API key, until `stopping` is set. Open turns are left as after a crash."""
    from holdfast.mcp_server.calls import SessionCalls
    from holdfast.mcp_server.http import PATH, open_endpoint
    from holdfast.mcp_server.server import create_server

    key, limits, listener = auth.load_or_create_key(app.settings), raise_descriptor_limit(), web.listen(HOST, port)
    try:
        async with _open_engine(app) as engine:
            server = create_server(SessionCalls(engine, app.search))
            origins = app.settings.api.cors_origins
            async with open_endpoint(server, max_bytes=_max_bytes(app), origins=origins) as endpoint:
                address, place = web.listener_address(listener) + PATH, auth.key_location(app.settings)
                serving = web.HttpServer(_protect(endpoint, app, engine, key), lambda: announce(address, place), limits)
                async with running(serving.serve([listener])) as (task,):
                    try:
                        await run_until_stopped(asyncio.wait({task}), stopping, engine)
                    finally:
                        serving.stop()
                        if not engine.death.done():
                            await engine.drain()
                        await asyncio.wait({task})
                    task.result()
    finally:
        listener.close()


@asynccontextmanager
async def _open_engine(app: App) -> AsyncIterator[Engine]:
    environment = config.environment()
    async with open_engine(
        app.database, app.settings, environment, supervisor=app.supervisor, kind=KIND, sweeps=True
    ) as engine:
        yield engine


def _max_bytes(app: App) -> int:
    return app.settings.api.max_body_mb * 2**20


def _protect(endpoint: ASGIApp, app: App, engine: Engine, key: str) -> ASGIApp:
    """Put the endpoint behind the checks of the API: host, key and size, with the same errors and the same access log."""
    api, services = app.settings.api, engine.services
    rules = AccessRules(
        auth.KeyCheck(key), hosts=(HOST, *api.hosts), origins=api.cors_origins, max_body=_max_bytes(app)
    )
    return RequestMiddleware(
        endpoint,
        rules,
        new_id=lambda: services.ids.make(REQUEST_ID_PREFIX),
        monotonic=services.clock.monotonic,
        count=RequestCounter().count,
    )
