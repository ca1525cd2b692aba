"""One configured MCP server: its connection, its login, and the calls that are in progress."""

from contextlib import AbstractAsyncContextManager
from pathlib import Path

import mcp_types as types
from mcp import Client

from holdfast.model.errors import Unavailable
from holdfast.model.tool import ToolContext
from holdfast.tools.mcp.authentication import Authentication
from holdfast.tools.mcp.call_driver import CallDriver
from holdfast.tools.mcp.connection import McpConnection
from holdfast.tools.mcp.running_call import RunningCall
from holdfast.tools.mcp.server import LinkSettings, McpServer
from holdfast.tools.mcp.server_requests import ServerRequests
from holdfast.tools.mcp.tasks import TasksExtension
from holdfast.tools.mcp.transport import open_http, open_stdio


class ServerLink:
    def __init__(
        self, server: McpServer, settings: LinkSettings, log: Path | None, authentication: Authentication | None
    ) -> None:
        if bool(server.command) == bool(server.url):
            raise Unavailable("configure either command or url")
        self._server = server
        self._settings = settings
        self._log = log
        self._authentication = authentication
        self._failure = ""
        self.requests = ServerRequests(server.name)
        self.connection = McpConnection(
            self._open_client,
            failure=lambda: self._failure,
            ping_seconds=settings.ping_seconds,
            connect_seconds=settings.connect_seconds,
        )

    async def call(
        self, tool: types.Tool, arguments: dict[str, object], context: ToolContext, *, may_repeat: bool
    ) -> types.CallToolResult:
        """Call a tool, or continue the call of a worker that died. Raises as `CallDriver.run` does."""
        driver = CallDriver(self.connection, self.requests, tool, arguments, may_repeat=may_repeat)
        return await driver.run(RunningCall(context, self._settings.call_seconds))

    def _open_client(self) -> "AbstractAsyncContextManager[Client]":
        options = self.requests.options() | {"extensions": [TasksExtension()]}
        if self._server.url:
            return open_http(self._server, self._settings.connect_seconds, self._authentication, **options)
        self._failure = ""
        return open_stdio(self._server, self._log, self._settings.connect_seconds, self._report, **options)

    def _report(self, failure: str) -> None:
        self._failure = failure
