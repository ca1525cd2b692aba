"""`holdfast mcp`: an MCP server for programs that use sessions."""

import asyncio

import click

from holdfast.cli import context, errors, garbage_collection, render, signals
from holdfast.wiring.store import App

PORT = 8421
"""The port after that of `holdfast serve`."""


@click.command()
@click.option("--http", is_flag=True, help="Listen on a port of this machine instead of standard input.")
@click.option("--port", type=click.IntRange(0, 65535), help=f"Port for --http; 0 picks a free one. [{PORT}]")
def mcp(*, http: bool, port: int | None) -> int:
    """Serve sessions to MCP clients over standard input and output."""
    if port is not None and not http:
        raise click.UsageError("--port needs --http")
    from holdfast.wiring.mcp_server import require_library

    require_library()
    context.hide_secrets()
    return context.with_app(lambda app: _serve(app, (PORT if port is None else port) if http else None))


async def _serve(app: App, port: int | None) -> int:
    from holdfast.wiring.mcp_server import serve_http, serve_stdio

    stopping = asyncio.Event()
    with signals.catch_signals(lambda number: stopping.set()):
        if port is None:
            garbage_collection.resume()
            await serve_stdio(app, stopping)
        else:
            await serve_http(app, port, _announce, stopping)
    return errors.DONE


def _announce(address: str, key: str) -> None:
    render.print_text(f"Holdfast serves MCP at {address}; the API key is {key}")
    render.flush()
    garbage_collection.resume()
