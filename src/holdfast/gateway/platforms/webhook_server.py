"""Receives the webhooks of one platform: any path, POST only, with a limit on the body.

It is the HTTP server of the API with another application on the platform's own address (`listen`), so the same limits on
headers, time and connections apply, and a public webhook port does not expose the API.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from holdfast.gateway.port import PlatformOptions
from holdfast.model.errors import HoldfastError, Invalid
from holdfast.tasks import running

if TYPE_CHECKING:
    from holdfast.http_connection import ConnectionLimits

logger = logging.getLogger(__name__)
MAX_BODY = 2 * 1024 * 1024
STOP_SECONDS = 3.0
Headers = Mapping[str, str]
WebhookResponse = tuple[int, bytes]
WebhookHandler = Callable[[Headers, bytes], Awaitable[WebhookResponse]]
"""Returns the status and the body of the response. The names of the headers are in lower case."""


def listen_address(options: PlatformOptions) -> tuple[str, int]:
    """Parse the setting `listen`, HOST:PORT. Raises Invalid."""
    host, colon, port = options.text("listen").rpartition(":")
    if not colon or not port.isdecimal() or int(port) > 65535:
        raise Invalid(f"listen: expected HOST:PORT, such as 127.0.0.1:8421, not {host}{colon}{port}")
    return host.strip("[]") or "127.0.0.1", int(port)


async def serve(address: tuple[str, int], handler: WebhookHandler, limits: "ConnectionLimits | None" = None) -> None:
    """Serve requests until cancelled. Raises Unavailable if the address is in use."""
    from holdfast import http_connection, http_server

    listener = http_server.listen(*address)
    limits = limits or http_connection.current_limits()
    server = http_server.HttpServer(_make_application(handler), lambda: None, limits)
    try:
        async with running(server.serve([listener])) as (task,):
            try:
                await asyncio.wait({task})
                task.result()
            finally:
                # Let the server stop by itself first: a cancelled one leaves its socket open and clients waiting.
                server.should_exit = server.force_exit = True
                await asyncio.wait({task}, timeout=STOP_SECONDS)
    finally:
        listener.close()


def _make_application(handler: WebhookHandler) -> ASGIApp:
    async def application(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        status, body = await _handle_request(Request(scope, receive), handler)
        # In both cases the rest of the body is not read, so the connection cannot be used again.
        headers = {"connection": "close"} if status in (405, 413) else None
        await Response(body, status, headers, "application/json")(scope, receive, send)

    return application


async def _handle_request(request: Request, handler: WebhookHandler) -> WebhookResponse:
    """Call the handler. If it cannot store the request, a 503 tells the sender to send it again."""
    if request.method != "POST":
        return 405, b'{"error":"POST only"}'
    body = await _read_body(request)
    if body is None:
        return 413, b'{"error":"too large"}'
    try:
        return await handler(dict(request.headers.items()), body)
    except HoldfastError as e:
        logger.warning("cannot store a message: %s", e)
        return 503, b'{"error":"not stored; send it again"}'


async def _read_body(request: Request) -> bytes | None:
    """Read the body; None if it is too large or the client disconnects."""
    body = bytearray()
    try:
        async for chunk in request.stream():
            body += chunk
            if len(body) > MAX_BODY:
                return None
    except ClientDisconnect:
        return None
    return bytes(body)
