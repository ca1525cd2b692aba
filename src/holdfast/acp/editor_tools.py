"""The tools of each session of an editor: the built-in ones, with the editor's buffers, and its MCP servers."""

import asyncio
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from acp.schema import HttpMcpServer, McpServerStdio

from holdfast.acp.editor_files import BufferedEditTool, BufferedReadTool, EditorBuffers
from holdfast.model.errors import Invalid
from holdfast.model.tool import Tool
from holdfast.tasks import Tasks
from holdfast.tools.mcp.server import McpServer
from holdfast.tools.mcp.servers import McpServers
from holdfast.tools.toolbox import Toolbox

logger = logging.getLogger(__name__)
READING, CHANGING = ("read_file",), ("write_file", "edit_file")


class EditorTools:
    """One per process. Sessions that no editor has open have the tools of every other interface."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._buffers: dict[str, EditorBuffers] = {}
        self._servers: dict[str, McpServers] = {}
        self._opening: dict[str, asyncio.Task[None]] = {}
        self._tasks = Tasks()

    async def open(self, session_id: str, servers: Sequence[McpServer], buffers: EditorBuffers) -> None:
        """Give the session these tools. The servers start meanwhile; `wait_until_ready` waits for them."""
        await self.close(session_id)
        self._buffers[session_id] = buffers
        if servers:
            self._opening[session_id] = self._tasks.start(self._start(session_id, servers), f"acp tools {session_id}")

    async def wait_until_ready(self, session_id: str) -> None:
        """Wait for the session's servers. One that does not start is reported in the log; the others still work."""
        if (opening := self._opening.get(session_id)) is not None:
            await asyncio.wait({opening})

    async def close(self, session_id: str) -> None:
        """End the session's servers."""
        await self.wait_until_ready(session_id)
        self._opening.pop(session_id, None)
        self._buffers.pop(session_id, None)
        if (servers := self._servers.pop(session_id, None)) is not None:
            await servers.close()

    async def close_all(self) -> None:
        self._tasks.cancel()
        for session_id in list(self._buffers):
            await self.close(session_id)
        await self._tasks.close()

    def toolbox(self, session_id: str, base: Toolbox) -> Toolbox:
        """The tools of the session at this moment."""
        buffers, servers = self._buffers.get(session_id), self._servers.get(session_id)
        if buffers is None:
            return base
        replaced = [
            tool for name in (*READING, *CHANGING) if (tool := self._buffered(base.get(name), buffers)) is not None
        ]
        return base.with_tools([*replaced, *(servers.tools() if servers is not None else ())])

    def _buffered(self, tool: Tool, buffers: EditorBuffers) -> Tool | None:
        if tool.spec.name in READING and buffers.can_read:
            return BufferedReadTool(tool, buffers)
        if tool.spec.name in CHANGING and buffers.can_write:
            return BufferedEditTool(tool, buffers, self._home)
        return None

    async def _start(self, session_id: str, servers: Sequence[McpServer]) -> None:
        opened = McpServers(servers, logs=self._home / "logs")
        await opened.__aenter__()
        for problem in opened.problems:
            logger.warning("tools of MCP servers are missing: %s", problem)
        self._servers[session_id] = opened


def parse_servers(given: Sequence[Any] | None) -> list[McpServer]:
    """The servers that the editor names. Raises Invalid for a transport that is not supported, and for equal names."""
    servers = [_parse(one) for one in given or ()]
    names = [server.name for server in servers]
    if len(set(names)) < len(names):
        raise Invalid("two MCP servers have the same name")
    return servers


def _parse(given: Any) -> McpServer:
    match given:
        case McpServerStdio():
            env = {variable.name: variable.value for variable in given.env}
            return McpServer(name=given.name, command=(given.command, *given.args), env=env)
        case HttpMcpServer():
            return McpServer(name=given.name, url=given.url, headers={one.name: one.value for one in given.headers})
        case _:
            raise Invalid(
                f"MCP servers of the type {getattr(given, 'type', '?')!r} are not supported; use stdio or http"
            )
