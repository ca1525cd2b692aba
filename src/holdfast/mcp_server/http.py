"""The transport over HTTP at one path. Each request is complete in itself, so any server process can answer it."""

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

import msgspec
from mcp.server.lowlevel import Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from holdfast.http_connection import error_body
from holdfast.safe_fetch import is_loopback

PATH = "/mcp"


class McpEndpoint:
    """Serves one path. A browser page may use it only from this machine or from a listed origin."""

    def __init__(self, app: ASGIApp, origins: Iterable[str]) -> None:
        self._app = app
        self._origins = set(origins)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        origin = Headers(scope=scope).get("origin")
        if scope["path"] != PATH:
            answer = _refuse(404, "not_found", f"no route {scope['path']}; the MCP server is at {PATH}")
            await answer(scope, receive, send)
        elif origin is not None and not self._allows(origin):
            answer = _refuse(
                403, "origin_not_allowed", f"origin {origin!r} is not allowed; add it to [api] cors_origins"
            )
            await answer(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    def _allows(self, origin: str) -> bool:
        try:
            host = urlsplit(origin).hostname or ""
        except ValueError:
            return False
        return origin in self._origins or "*" in self._origins or is_loopback(host)


def _refuse(status: int, code: str, message: str) -> Response:
    return Response(msgspec.json.encode(error_body(status, code, message)), status, media_type="application/json")


@asynccontextmanager
async def open_endpoint(server: "Server[Any]", *, max_bytes: int, origins: Iterable[str]) -> AsyncIterator[McpEndpoint]:
    """Open the endpoint. Calls that still run when it closes are cancelled; their turns go on."""
    manager = StreamableHTTPSessionManager(server, stateless=True, max_request_body_size=max_bytes)
    async with manager.run():
        yield McpEndpoint(manager.handle_request, origins)
