"""/mcp: the configured MCP servers, whether they are available, and their tools."""

import re
from collections.abc import Iterator, Sequence
from urllib.parse import urlsplit

from holdfast.model.sanitize import one_line
from holdfast.model.text import counted
from holdfast.settings import McpSettings
from holdfast.slash.context import CommandContext

SHOWN = 30
"""Tools that are listed for each server."""


async def mcp(context: CommandContext, rest: str) -> None:
    """List the MCP servers of the settings."""
    configured = context.settings.mcp
    if not configured:
        context.show("No MCP servers are configured; add a table [mcp.NAME] to config.toml.")
        return
    lines: list[str] = []
    is_complete = True
    for name, settings in sorted(configured.items()):
        tools = _tools_of(name, context.engine.tool_names)
        is_complete &= bool(tools)
        lines += _lines(name, settings, tools)
    hint = [] if is_complete else ["Details are in logs/holdfast.log; restart the chat to try again."]
    context.show("\n".join([*lines, *hint]))


def _tools_of(server: str, names: Sequence[str]) -> list[str]:
    """The server's own names of its tools, from the names that the model sees (`mcp__SERVER__TOOL`)."""
    prefix = f"mcp__{re.sub(r'[^A-Za-z0-9_-]', '_', server)}__"
    return [name.removeprefix(prefix) for name in names if name.startswith(prefix)]


def _lines(name: str, settings: McpSettings, tools: Sequence[str]) -> Iterator[str]:
    # Arguments, and the user and query of an address, may be secrets.
    where = one_line(urlsplit(settings.url).hostname or "" if settings.url else " ".join(settings.command[:1]))
    trust = ", trusted" if settings.trust else ""
    if tools:
        more = f" … {len(tools) - SHOWN} more" if len(tools) > SHOWN else ""
        yield f"● {name} ({where}{trust}): {counted(len(tools), 'tool')}"
        yield f"    {', '.join(map(one_line, tools[:SHOWN]))}{more}"
        return
    login = f"; if it needs a login: holdfast mcp-login {name}" if settings.url else ""
    yield f"○ {name} ({where}{trust}): unavailable, or without tools{login}"
