"""`holdfast acp`: an agent for editors that speak the Agent Client Protocol."""

import asyncio

import click

from holdfast.cli import context, errors, garbage_collection, signals
from holdfast.wiring.store import App


@click.command()
def acp() -> int:
    """Serve an editor over standard input and output (Agent Client Protocol)."""
    from holdfast.wiring.acp_agent import require_library

    require_library()
    context.hide_secrets()
    return context.with_app(_serve)


async def _serve(app: App) -> int:
    from holdfast.wiring.acp_agent import serve_editor

    stopping = asyncio.Event()
    with signals.catch_signals(lambda number: stopping.set()):
        garbage_collection.resume()
        await serve_editor(app, stopping)
    return errors.DONE
