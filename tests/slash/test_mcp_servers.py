"""/mcp: the MCP servers of the settings."""

import msgspec

from holdfast.settings import McpSettings
from holdfast.slash import registry
from tests.slash.conftest import TestContext


async def test_servers_are_listed_with_their_tools_or_how_to_log_in(context: TestContext) -> None:
    await registry.run(context, "/mcp")
    assert "No MCP servers are configured" in context.last

    servers = {
        "my files": McpSettings(command=("files-server", "--secret"), trust=True),
        "wiki": McpSettings(url="https://me:hidden@wiki.example/mcp?key=hidden"),
    }
    context.settings = msgspec.structs.replace(context.settings, mcp=servers)
    context.engine.tool_names = ("terminal", "mcp__my_files__read", "mcp__my_files__write")
    await registry.run(context, "/mcp")

    assert "● my files (files-server, trusted): 2 tools\n    read, write" in context.last
    assert "○ wiki (wiki.example): unavailable" in context.last
    assert "holdfast mcp-login wiki" in context.last
    assert "--secret" not in context.last and "hidden" not in context.last
