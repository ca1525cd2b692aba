"""A person logs in to an MCP server: the browser opens the login page and is redirected to a port of this machine."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from mcp import MCPError
from mcp.shared.auth import AuthorizationCodeResult

from holdfast.model.errors import Invalid, LoginFailed, Unavailable
from holdfast.model.times import Clock
from holdfast.tools.mcp.authentication import Authentication, open_authentication
from holdfast.tools.mcp.connection import McpConnection
from holdfast.tools.mcp.rejection import watched_login
from holdfast.tools.mcp.server import McpServer
from holdfast.tools.mcp.token_file import TokenFile
from holdfast.tools.mcp.transport import open_http

LOGIN_SECONDS = 300.0
"""How long a person may take."""
ANSWER_SECONDS = 30.0
"""How long the server and its authorization server may take for each answer."""
REQUEST_SECONDS = 10.0
"""How long the browser may take to send a request; it also opens connections that it does not use."""
MAX_REQUEST_BYTES = 65_536
PATH = "/callback"
PAGE = (
    b"HTTP/1.1 %s\r\nContent-Type: text/html; charset=utf-8\r\nContent-Security-Policy: default-src 'none'\r\n"
    b"Connection: close\r\n\r\n<!doctype html><title>Holdfast</title><p>%s"
)


class LoopbackRedirect:
    """Waits on the loopback address for the browser that comes back from the login page."""

    def __init__(self, show: Callable[[str], None], seconds: float) -> None:
        self._show = show
        self._seconds = seconds
        self._arrived: asyncio.Future[dict[str, str]] | None = None
        self.redirect_uri = ""

    @contextlib.asynccontextmanager
    async def listening(self, port: int) -> AsyncIterator["LoopbackRedirect"]:
        try:
            server = await asyncio.start_server(self._serve, "127.0.0.1", port, limit=MAX_REQUEST_BYTES)
        except OSError as e:
            raise LoginFailed(f"port {port} for the redirect is not available: {e.strerror}") from e
        async with server:
            self.redirect_uri = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}{PATH}"
            yield self

    async def __call__(self, url: str) -> AuthorizationCodeResult:
        """Show the login page and wait for the redirect. Raises LoginFailed if the login is refused or takes too long."""
        self._arrived = asyncio.get_running_loop().create_future()
        self._show(url)
        try:
            async with asyncio.timeout(self._seconds):
                query = await self._arrived
        except TimeoutError as e:
            raise LoginFailed(f"there was no login within {self._seconds:g} s") from e
        if "error" in query:
            detail = query.get("error_description") or query["error"]
            raise LoginFailed(f"the authorization server refused the login: {detail}")
        return AuthorizationCodeResult(code=query.get("code", ""), state=query.get("state"), iss=query.get("iss"))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.closing(writer):
            try:
                async with asyncio.timeout(REQUEST_SECONDS):
                    head = await reader.readuntil(b"\r\n\r\n")
            except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, ConnectionError, TimeoutError):
                return
            method, _, target = head.split(b"\r\n", 1)[0].decode("ascii", "replace").partition(" ")
            found = urlsplit(target.partition(" ")[0])
            query = {name: values[0] for name, values in parse_qs(found.query).items()}
            is_ours = method == "GET" and found.path == PATH and not {"code", "error"}.isdisjoint(query)
            writer.write(
                PAGE % (b"200 OK", b"You can close this window.")
                if is_ours
                else PAGE % (b"404 Not Found", b"Not found")
            )
            with contextlib.suppress(ConnectionError):
                await writer.drain()
            if is_ours and self._arrived is not None and not self._arrived.done():
                self._arrived.set_result(query)


async def log_in(
    server: McpServer,
    folder: Path,
    clock: Clock,
    show: Callable[[str], None],
    *,
    scope: str | None = None,
    seconds: float = LOGIN_SECONDS,
    answer_seconds: float = ANSWER_SECONDS,
) -> bool:
    """Log in to the server and store the login; False if the server asks for no login.

    Raises LoginFailed if the login does not succeed, Invalid if the server uses no OAuth.
    """
    if not server.uses_oauth:
        raise Invalid(f"MCP server {server.name} needs a url, and no authorization header, to log in")
    file = TokenFile(folder, server.name, server.url)
    port = server.oauth.redirect_port or file.redirect_port()
    redirect = LoopbackRedirect(show, seconds)
    async with contextlib.AsyncExitStack() as stack:
        try:
            await stack.enter_async_context(redirect.listening(port))
        except LoginFailed:
            if server.oauth.redirect_port:
                raise
            await stack.enter_async_context(redirect.listening(0))
        file.forget_tokens()
        authentication = open_authentication(server, folder, clock, authorize=redirect, scope=scope)
        await _visit(server, authentication, seconds, answer_seconds)
        return file.has_tokens()


async def _visit(
    server: McpServer, authentication: Authentication, login_seconds: float, answer_seconds: float
) -> None:
    """Connect to the server, and list its tools: some servers ask for a login only then."""
    connection = McpConnection(
        lambda: open_http(server, answer_seconds, authentication),
        ping_seconds=login_seconds + answer_seconds,
        connect_seconds=login_seconds + answer_seconds,
    )
    with watched_login() as login:
        try:
            client = await connection.open()
            if client.server_capabilities.tools is not None:
                await client.list_tools()
        except (Unavailable, MCPError) as e:
            raise LoginFailed(f"MCP server {server.name}: {login.last or e}") from e
        finally:
            await connection.close()
