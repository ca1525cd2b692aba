"""Builds the agent for editors: an engine behind the Agent Client Protocol on standard input and output."""

import asyncio
import importlib.util
from functools import partial

from holdfast import config
from holdfast.installation import command_to_add
from holdfast.model.errors import Unsupported
from holdfast.stdio_pipes import PipeLines, open_pipes, own_descriptors
from holdfast.wiring.compaction import context_window
from holdfast.wiring.engine import open_engine
from holdfast.wiring.run_until_stopped import run_until_stopped
from holdfast.wiring.store import App

KIND = "acp"
"""The kind of worker in the store."""


def require_library() -> None:
    """Raise Unsupported if the protocol's library is not installed."""
    if importlib.util.find_spec("acp") is None:
        raise Unsupported(f"the ACP library is not installed; run: {command_to_add('acp')}")


async def serve_editor(app: App, stopping: asyncio.Event) -> None:
    """Serve the editor that started this process.

    When it leaves, finish the turns that need no answer; a signal leaves all of them open. Raises what `Engine.death`
    fails with if that comes first.
    """
    from acp.agent.connection import AgentSideConnection

    from holdfast.acp.agent import EditorAgent
    from holdfast.acp.editor_tools import EditorTools
    from holdfast.acp.services import EditorServices
    from holdfast.acp.transport import EditorTransport

    tools = EditorTools(app.settings.home)
    with own_descriptors("an editor starts this command; see docs/editors.md") as (source, target):
        async with (
            open_engine(
                app.database,
                app.settings,
                config.environment(),
                supervisor=app.supervisor,
                kind=KIND,
                sweeps=True,
                attended=True,
                session_tools=tools.toolbox,
            ) as engine,
            open_pipes(source, target) as (reader, writer),
        ):
            services = EditorServices(app.settings, tools, app.search, partial(context_window, app.settings))
            agent = EditorAgent(engine, services)
            transport = EditorTransport(PipeLines(reader, app.settings.api.max_body_mb * 2**20), writer)
            connection = AgentSideConnection(agent, transport, listening=False, use_unstable_protocol=True)  # type: ignore[arg-type] # methods are found by name
            try:
                await run_until_stopped(connection.listen(), stopping, engine)
                if not stopping.is_set():
                    await run_until_stopped(agent.wait_until_idle(), stopping, engine)
            finally:
                await agent.close()
                await connection.close()
                await engine.drain()
                await tools.close_all()
