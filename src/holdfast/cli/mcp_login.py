"""`holdfast mcp-login` and `holdfast mcp-logout`: the login to an MCP server that uses OAuth."""

import asyncio
import webbrowser

import click

from holdfast.cli import context, render
from holdfast.clock import SystemClock
from holdfast.installation import command_to_add
from holdfast.model.errors import LoginFailed, NotFound
from holdfast.tools.mcp.server import McpServer
from holdfast.tools.mcp.token_file import FOLDER, TokenFile


@click.command("mcp-login")
@click.argument("name")
@click.option("--scope", help="Request this scope in addition to what the server asks for.")
@click.option("--no-browser", is_flag=True, help="Only print the address of the login page.")
def mcp_login(*, name: str, scope: str | None, no_browser: bool) -> None:
    """Log in to the MCP server NAME. After the first login, restart running workers so that they list its tools."""
    server = _server(name)
    try:
        from holdfast.tools.mcp.login import log_in
    except ModuleNotFoundError as e:
        raise LoginFailed(f"the MCP library is not installed; run: {command_to_add('mcp')}") from e

    def show(url: str) -> None:
        render.print_text(f"Log in here: {url}")
        if not no_browser:
            webbrowser.open(url)

    home = context.settings().home
    was_needed = asyncio.run(log_in(server, home / FOLDER, SystemClock(), show, scope=scope))
    render.print_text(f"Logged in to {name}" if was_needed else f"MCP server {name} asks for no login")


@click.command("mcp-logout")
@click.argument("name")
def mcp_logout(name: str) -> None:
    """Delete the stored login of the MCP server NAME."""
    server = _server(name)
    if not TokenFile(context.settings().home / FOLDER, name, server.url).delete():
        raise NotFound(f"there is no stored login of MCP server {name}")
    render.print_text(f"Deleted the login of {name}")


def _server(name: str) -> McpServer:
    found = context.settings().mcp.get(name)
    if found is None:
        known = ", ".join(sorted(context.settings().mcp)) or "none"
        raise NotFound(f"no MCP server {name} is configured; configured are: {known}")
    return McpServer(
        name=name,
        url=found.url or "",
        headers={key: secret.reveal() for key, secret in found.headers.items()},
        oauth=found.oauth,
    )
