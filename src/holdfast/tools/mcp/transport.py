"""Opens the client of one MCP server, over HTTP or as a child process."""

import contextlib
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import holdfast
from holdfast.tools.mcp.server import MAX_MESSAGE_BYTES, McpServer

if TYPE_CHECKING:
    import mcp_types
    from mcp import Client
    from mcp.client._transport import TransportStreams

    from holdfast.tools.mcp.authentication import Authentication

MAX_LOG_BYTES = 1_000_000


@contextlib.asynccontextmanager
async def open_stdio(
    server: McpServer, log: Path | None, seconds: float, report: Callable[[str], None], **options: Any
) -> "AsyncIterator[Client]":
    from mcp import Client

    from holdfast.tools.mcp.stdio import stdio_transport

    with _open_log(log) as errors:
        transport = _with_types(stdio_transport(server, errors, report))
        async with Client(transport, client_info=_client_info(), read_timeout_seconds=seconds, **options) as client:
            yield client


@contextlib.asynccontextmanager
async def open_http(
    server: McpServer, seconds: float, authentication: "Authentication | None", **options: Any
) -> "AsyncIterator[Client]":
    from mcp import Client
    from mcp.client.streamable_http import streamable_http_client

    from holdfast.tools.mcp.http import open_web_client

    async with open_web_client(server, seconds, authentication) as web:
        streams = streamable_http_client(server.url, http_client=web, max_sse_event_size=MAX_MESSAGE_BYTES)
        transport = _with_types(streams)
        async with Client(transport, client_info=_client_info(), read_timeout_seconds=seconds, **options) as client:
            yield client


@contextlib.asynccontextmanager
async def _with_types(
    transport: "contextlib.AbstractAsyncContextManager[TransportStreams]",
) -> "AsyncIterator[TransportStreams]":
    from holdfast.tools.mcp.typed_results import TypedResults

    async with transport as (read, write):
        yield TypedResults(read), write


def _client_info() -> "mcp_types.Implementation":
    from mcp_types import Implementation

    return Implementation(name="holdfast", version=holdfast.__version__)


def _open_log(log: Path | None) -> TextIO:
    """The log file for a server's stderr; truncated when it has become long."""
    if log is None:
        return Path(os.devnull).open("w")
    log.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    is_long = log.exists() and log.stat().st_size > MAX_LOG_BYTES
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | (os.O_TRUNC if is_long else 0)
    return os.fdopen(os.open(log, flags, 0o600), "w")
