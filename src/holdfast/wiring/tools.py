"""Build the toolbox: built-in tools, MCP tools, and the sandbox for commands."""

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import msgspec

from holdfast.engine.context.tokens import BYTES_PER_TOKEN
from holdfast.engine.services import EngineServices
from holdfast.engine.turn.memory_call import MemorySettings
from holdfast.engine.turn.tool_call import ToolCallSettings
from holdfast.model.delegation import delegation_of
from holdfast.model.errors import Unsupported
from holdfast.model.event import Delegation, Event, SessionOpened
from holdfast.model.session import Session
from holdfast.model.tool import Tool
from holdfast.processes.foreground import ForegroundCommands
from holdfast.processes.registry import ProcessRegistry
from holdfast.settings import Settings
from holdfast.store.database import Database
from holdfast.tools.backends.bubblewrap import BubblewrapBackend
from holdfast.tools.backends.container import ContainerBackend
from holdfast.tools.backends.local import LocalBackend
from holdfast.tools.backends.registry import Backends, choose_backend
from holdfast.tools.backends.ssh import SshBackend
from holdfast.tools.builtin import builtin_tools
from holdfast.tools.command_snapshots import CommandSnapshots
from holdfast.tools.delegate import DelegateTool
from holdfast.tools.process import ProcessTool
from holdfast.tools.recall import PAGE_CHARS, RecallTool
from holdfast.tools.recall_memory import RecallMemoryTool
from holdfast.tools.remember import RememberTool
from holdfast.tools.sandbox import Sandbox, open_sandbox
from holdfast.tools.send_file import SendFileTool
from holdfast.tools.todo import TodoTool
from holdfast.tools.toolbox import Toolbox
from holdfast.wiring.delegation import delegation_settings, session_toolbox
from holdfast.wiring.memory import find_project, without_memory
from holdfast.wiring.web_tools import make_web_tools
from holdfast.wiring.workdir import session_workdir

logger = logging.getLogger(__name__)

ATTENDED_SOURCES = ("gateway",)
"""Sources whose users answer questions in place: there a question waits without a time limit."""


class SessionTools(msgspec.Struct, frozen=True):
    """The tools of a worker."""

    toolbox: Toolbox
    containers: ContainerBackend
    has_bubblewrap: bool
    snapshots: CommandSnapshots


def tool_call_settings(
    session: Session, opened: Event, tools: SessionTools, settings: Settings, *, attended: bool
) -> ToolCallSettings:
    """Decide how the tool calls of a session run: approvals, time limits, directories and the terminal backend."""
    recorded = opened.workdir if isinstance(opened, SessionOpened) else None
    link = delegation_of(session, opened)
    attended = attended or (link.root_source or session.summary.source) in ATTENDED_SOURCES

    def workdir() -> Path:
        return session_workdir(session, recorded, settings)

    model = session.summary.model or settings.model
    terminal = session_terminal(opened, settings, has_bubblewrap=tools.has_bubblewrap)
    memory = memory_settings(session, link, settings, workdir, terminal)
    offered = tools.toolbox if memory is not None else without_memory(tools.toolbox)
    toolbox = session_toolbox(offered, link, settings)
    return ToolCallSettings(
        toolbox=toolbox,
        approvals=settings.agent.approvals,
        approval_seconds=None if attended else settings.agent.approval_seconds,
        step_seconds=settings.agent.turn_seconds,
        workdir=workdir,
        files=settings.home / "files" / session.id,
        terminal=terminal,
        delegation=delegation_settings(toolbox, settings, model, workdir, terminal),
        memory=memory,
    )


def memory_settings(
    session: Session, link: Delegation, settings: Settings, workdir: Callable[[], Path], terminal: str
) -> MemorySettings | None:
    """Return the memory of a session; None for sources without one, and for side sessions.

    A sub-agent has a memory if the session at the top of its tree has one.
    """
    source = link.root_source or session.summary.source
    if source not in settings.agent.memory or session.summary.side_of is not None:
        return None
    return MemorySettings(partial(find_project, settings.home, workdir, terminal))


def make_sandbox(settings: Settings, environment: Mapping[str, str]) -> Sandbox:
    """Build the sandbox for terminal commands. Raises Unsupported if one is required and does not work."""
    return open_sandbox(settings.terminal.sandbox, settings.home, environment, _store_files(settings))


def _store_files(settings: Settings) -> tuple[Path, ...]:
    store = settings.store_path
    return () if store is None else (store, *(store.with_name(store.name + end) for end in ("-wal", "-shm")))


def session_terminal(opened: Event, settings: Settings, *, has_bubblewrap: bool) -> str:
    """Return the name of the terminal backend of the session that this event opened."""
    assert isinstance(opened, SessionOpened), "the first event of every session"
    return choose_backend(opened, settings.terminal, has_bubblewrap=has_bubblewrap)


def has_bubblewrap(settings: Settings, environment: Mapping[str, str]) -> bool:
    """Return whether commands can run in bubblewrap on this machine."""
    try:
        return make_sandbox(settings, environment).program is not None
    except Unsupported:
        return False


@asynccontextmanager
async def open_tools(
    services: EngineServices,
    settings: Settings,
    environment: Mapping[str, str],
    registry: ProcessRegistry,
    foreground: ForegroundCommands,
    window: int,
) -> AsyncIterator[SessionTools]:
    """Open the built-in tools and those of the configured MCP servers. Raises Invalid for settings that are not allowed."""
    database = services.database
    sandbox = await asyncio.to_thread(make_sandbox, settings, environment)
    if sandbox.program is None and settings.terminal.sandbox == "auto":
        logger.info("the terminal runs without a sandbox: %s", sandbox.reason)
    process = ProcessTool(registry, database, home=settings.home)
    # A page takes at most a tenth of the window, so that it fits into an almost full context.
    recall = RecallTool(database, min(PAGE_CHARS, window * BYTES_PER_TOKEN // 10))
    terminal, home = settings.terminal, settings.home
    containers = ContainerBackend(
        database,
        services.clock,
        services.identity,
        terminal.container,
        environment,
        home,
        hidden_files=_store_files(settings),
    )
    user_home = Path(environment.get("HOME") or "/")
    backends = Backends(
        [
            LocalBackend(sandbox),
            BubblewrapBackend(sandbox, terminal.bubblewrap, user_home),
            containers,
            SshBackend(terminal.ssh, environment, home),
        ]
    )
    snapshots = CommandSnapshots(home, environment.get("PATH", os.defpath), settings.rewind.max_files)
    own = builtin_tools(
        environment,
        home=settings.home,
        start_background=process.start,
        recording=foreground.recording,
        backends=backends,
        snapshots=snapshots if settings.rewind.snapshots else None,
    )
    send_file = SendFileTool(database, home=settings.home, backends=backends)
    async with (
        _open_image_tools(database, settings, backends) as image_tools,
        _open_mcp_tools(settings) as mcp_tools,
    ):
        web_tools = make_web_tools(settings, window)
        memory_tools = (RememberTool(), RecallMemoryTool())
        own_tools = [*own, process, recall, TodoTool(), *memory_tools, send_file, DelegateTool(), *web_tools]
        toolbox = Toolbox([*own_tools, *image_tools, *mcp_tools])
        yield SessionTools(toolbox, containers, has_bubblewrap=sandbox.program is not None, snapshots=snapshots)


@asynccontextmanager
async def _open_image_tools(database: Database, settings: Settings, backends: Backends) -> AsyncIterator[list[Tool]]:
    """Open the tool that makes images, if a service for it is configured."""
    access = settings.image_access()
    if access is None:
        yield []
        return
    from holdfast.providers.openai.images import DEFAULT_MODEL, OpenAiImages
    from holdfast.tools.make_image import MakeImageTool

    service = OpenAiImages(
        access.api_key.reveal() if access.api_key else "",
        access.base_url,
        model=settings.images.model or DEFAULT_MODEL,
        timeout_seconds=settings.images.timeout_seconds,
    )
    try:
        yield [MakeImageTool(database, service, home=settings.home, backends=backends)]
    finally:
        await service.close()


@asynccontextmanager
async def _open_mcp_tools(settings: Settings) -> AsyncIterator[Sequence[Tool]]:
    """Open the tools of the configured MCP servers."""
    if not settings.mcp:
        yield []
        return
    from holdfast.tools.mcp.server import McpServer
    from holdfast.tools.mcp.servers import McpServers
    from holdfast.tools.mcp.token_file import FOLDER

    servers = [
        McpServer(
            name=name,
            command=mcp.command,
            url=mcp.url or "",
            env={key: secret.reveal() for key, secret in mcp.env.items()},
            headers={key: secret.reveal() for key, secret in mcp.headers.items()},
            trust=mcp.trust,
            oauth=mcp.oauth,
        )
        for name, mcp in settings.mcp.items()
    ]
    async with McpServers(servers, logs=settings.home / "logs", logins=settings.home / FOLDER) as connected:
        for problem in connected.problems:
            logger.warning("tools of MCP servers are missing: %s", problem)
        yield connected.tools()
