"""The configured MCP servers and their tools. The library is imported only if a server is configured."""

import asyncio
import importlib.util
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from holdfast.clock import SystemClock
from holdfast.installation import command_to_add
from holdfast.model.errors import LoginFailed, Unavailable
from holdfast.model.times import Clock
from holdfast.model.tool import Tool
from holdfast.tasks import run_all
from holdfast.tools.mcp.connection import describe_error
from holdfast.tools.mcp.rejection import watched_login
from holdfast.tools.mcp.resources import extra_tools, find_extras
from holdfast.tools.mcp.server import LinkSettings, McpServer, safe_name
from holdfast.tools.mcp.tools import McpTool, tool_name

if TYPE_CHECKING:
    import mcp_types
    from mcp import Client

    from holdfast.tools.mcp.link import ServerLink

MAX_PAGES = 100
MAX_TOOLS = 1_000
"""Tools of one server; more than any model can use."""
RESOURCE, PROMPT = "read_resource", "get_prompt"
"""Tools that Holdfast adds to a server that has resources or prompts."""
Listing = tuple["ServerLink | None", list["mcp_types.Tool"], tuple[bool, bool]]


class McpServers:
    """The connections to all configured servers. A server that does not start is reported; the others still work."""

    def __init__(
        self,
        servers: Sequence[McpServer],
        *,
        logs: Path | None = None,
        logins: Path | None = None,
        clock: Clock | None = None,
        ping_seconds: float = 60.0,
        connect_seconds: float = 60.0,
        call_seconds: float = 600.0,
    ) -> None:
        self._servers = servers
        self._logs = logs
        self._logins = logins
        self._clock = clock or SystemClock()
        self._settings = LinkSettings(
            ping_seconds=ping_seconds, connect_seconds=connect_seconds, call_seconds=call_seconds
        )
        self._links: list[ServerLink] = []
        self._tools: list[Tool] = []
        self.problems: list[str] = []
        """Messages for the user about unavailable servers."""

    async def __aenter__(self) -> Self:
        try:
            await self._start()
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def tools(self) -> list[Tool]:
        """The tools of all available servers, in a stable order."""
        return list(self._tools)

    async def close(self) -> None:
        """Close all connections and end the server processes that were started. May be called twice."""
        await asyncio.gather(*(link.connection.close() for link in self._links))
        self._links.clear()

    async def _start(self) -> None:
        if self._servers and importlib.util.find_spec("mcp") is None:
            self.problems.append(f"the MCP library is not installed; run: {command_to_add('mcp')}")
            return
        listings = await run_all(*(self._connect(server) for server in self._servers))
        names: set[str] = set()
        for server, (link, tools, extras) in zip(self._servers, listings, strict=True):
            if link is None:
                continue
            offered: list[Tool] = []
            for tool in sorted(tools, key=lambda tool: tool.name):
                name = tool_name(server.name, tool.name, names)
                names.add(name)
                offered.append(McpTool(name, server, tool, link))
            own = (tool_name(server.name, RESOURCE, names), tool_name(server.name, PROMPT, names))
            offered += extra_tools(server.name, link.connection, own, extras)
            names |= {tool.spec.name for tool in offered}
            self._tools += sorted(offered, key=lambda tool: tool.spec.name)

    async def _connect(self, server: McpServer) -> "Listing":
        link = None
        try:
            link = self._open_link(server)
            client = await link.connection.open()
            tools = await _all_tools(client)
            if len(tools) > MAX_TOOLS:
                self.problems.append(
                    f"MCP server {server.name} offers {len(tools):,} tools or more; the first {MAX_TOOLS:,} are used"
                )
            return link, tools[:MAX_TOOLS], await find_extras(client)
        except (Unavailable, LoginFailed) as e:
            log = f"; its messages are in {self._log_path(server)}" if server.command and self._logs else ""
            self.problems.append(f"MCP server {server.name} is not available: {e}{log}")
            if link is not None:
                await link.connection.close()
            return None, [], (False, False)

    def _open_link(self, server: McpServer) -> "ServerLink":
        from holdfast.tools.mcp.authentication import open_authentication
        from holdfast.tools.mcp.link import ServerLink

        authentication = None
        if self._logins is not None and server.uses_oauth:
            authentication = open_authentication(server, self._logins, self._clock)
        link = ServerLink(server, self._settings, self._log_path(server), authentication)
        self._links.append(link)
        return link

    def _log_path(self, server: McpServer) -> Path | None:
        return self._logs / f"mcp-{safe_name(server.name)}.log" if self._logs else None


async def _all_tools(client: "Client") -> "list[mcp_types.Tool]":
    from mcp import MCPError

    tools: list[mcp_types.Tool] = []
    cursor = None
    with watched_login() as login:
        try:
            for _ in range(MAX_PAGES):
                page = await client.list_tools(cursor=cursor)
                tools += page.tools
                cursor = page.next_cursor
                if cursor is None or len(tools) > MAX_TOOLS:
                    break
        except (MCPError, ValueError) as e:
            raise Unavailable(login.last or f"it cannot list its tools: {describe_error(e)}") from e
    return tools
