"""The agent: the methods that an editor calls, on the same store and engine as every other interface.

The protocol's package finds the methods by their names and checks the parameters. Everything that lasts is in the log, so
an editor, or this process, can be killed at any point: `session/load` shows the session again.
"""

import asyncio
import logging
from pathlib import Path
from typing import Any

from acp import PROTOCOL_VERSION, helpers
from acp.exceptions import RequestError
from acp.schema import (
    AgentCapabilities,
    AuthenticateResponse,
    ClientCapabilities,
    CloseSessionResponse,
    ForkSessionResponse,
    Implementation,
    InitializeResponse,
    ListSessionsResponse,
    LoadSessionResponse,
    McpCapabilities,
    NewSessionResponse,
    PromptCapabilities,
    PromptResponse,
    ResumeSessionResponse,
    SessionCapabilities,
    SessionCloseCapabilities,
    SessionForkCapabilities,
    SessionInfo,
    SessionListCapabilities,
    SessionResumeCapabilities,
    SetSessionConfigOptionResponse,
    SetSessionModeResponse,
)

import holdfast
from holdfast.acp import config_options, session_listing
from holdfast.acp.commands import EditorCommandContext
from holdfast.acp.content import Block, to_parts
from holdfast.acp.editor_files import EditorBuffers
from holdfast.acp.editor_session import EditorSession
from holdfast.acp.editor_tools import parse_servers
from holdfast.acp.errors import translated
from holdfast.acp.services import EditorServices
from holdfast.engine.admission.open_session import OpenRequest
from holdfast.engine.admission.rewind import Rewind
from holdfast.engine.engine import Engine
from holdfast.model.errors import Invalid, NotFound
from holdfast.model.event import GoalSet, Source
from holdfast.model.message import Content, Text, text_of
from holdfast.model.mode import LOCAL_USER, parse_mode
from holdfast.model.session import Session
from holdfast.model.times import iso
from holdfast.providers import registry as providers
from holdfast.slash import registry as slash
from holdfast.store.database import Transaction
from holdfast.store.repos import sessions
from holdfast.tasks import running, wait_for_first
from holdfast.tools.mcp.server import McpServer
from holdfast.tools.paths import check_path_text

logger = logging.getLogger(__name__)
SOURCE: Source = "chat"
"""A person talks to the agent, as in the terminal."""
OPENED = "opened in an editor"
CHECK_SECONDS = 0.25
"""How often to check whether a turn has ended: its end is shown a moment before."""


class EditorAgent:
    """One per connection."""

    def __init__(self, engine: Engine, services: EditorServices) -> None:
        self._engine = engine
        self._services = services
        self._client: Any = None
        self._sessions: dict[str, EditorSession] = {}
        self._opening = asyncio.Lock()
        self._capabilities = ClientCapabilities()

    def on_connect(self, conn: Any) -> None:
        self._client = conn

    async def close(self) -> None:
        """Stop following the sessions. Turns go on."""
        for session in self._sessions.values():
            await session.close()

    async def wait_until_idle(self) -> None:
        """Wait until every turn that runs here has ended, or waits for an answer that nobody here can give any more."""
        while busy := [session for session in self._sessions.values() if session.is_busy]:
            async with running(*(session.wait_for_change() for session in busy)) as tasks:
                await wait_for_first(*tasks, seconds=CHECK_SECONDS)

    # connection

    async def initialize(
        self,
        protocol_version: int,
        client_capabilities: ClientCapabilities | None = None,
        client_info: Implementation | None = None,
        **kwargs: Any,
    ) -> InitializeResponse:
        self._capabilities = client_capabilities or ClientCapabilities()
        return InitializeResponse(
            protocol_version=PROTOCOL_VERSION,
            agent_capabilities=AgentCapabilities(
                load_session=True,
                prompt_capabilities=PromptCapabilities(image=True, audio=False, embedded_context=True),
                mcp_capabilities=McpCapabilities(http=True, sse=False),
                session_capabilities=SessionCapabilities(
                    list=SessionListCapabilities(),
                    resume=SessionResumeCapabilities(),
                    close=SessionCloseCapabilities(),
                    fork=SessionForkCapabilities(),
                ),
            ),
            auth_methods=[],
            agent_info=Implementation(name="holdfast", title="Holdfast", version=holdfast.__version__),
        )

    @translated
    async def authenticate(self, method_id: str, **kwargs: Any) -> AuthenticateResponse:
        raise Invalid(f"there is no authentication method {method_id[:100]!r}: none is needed")

    # sessions

    @translated
    async def new_session(self, cwd: str, mcp_servers: list[Any] | None = None, **kwargs: Any) -> NewSessionResponse:
        workdir, servers = _check_workdir(cwd), parse_servers(mcp_servers)
        opened = await self._engine.open(OpenRequest(source=SOURCE, workdir=workdir))
        await self._attach(opened.session.id, opened.session.id, servers, replay=False)
        return NewSessionResponse(session_id=opened.session.id, **self._menus(opened.session))

    @translated
    async def load_session(
        self, cwd: str, session_id: str, mcp_servers: list[Any] | None = None, **kwargs: Any
    ) -> LoadSessionResponse:
        """Show the whole session again, then follow it."""
        found = await self._reopen(cwd, session_id, mcp_servers, replay=True)
        return LoadSessionResponse(**self._menus(found))

    @translated
    async def resume_session(
        self, session_id: str, cwd: str, mcp_servers: list[Any] | None = None, **kwargs: Any
    ) -> ResumeSessionResponse:
        """Follow the session without showing what was said before."""
        found = await self._reopen(cwd, session_id, mcp_servers, replay=False)
        return ResumeSessionResponse(**self._menus(found))

    @translated
    async def fork_session(
        self, session_id: str, cwd: str, mcp_servers: list[Any] | None = None, **kwargs: Any
    ) -> ForkSessionResponse:
        _check_workdir(cwd)
        servers = parse_servers(mcp_servers)
        parent = await self._resolve(session_id)
        forked = await self._engine.actions.fork(parent.id, source=SOURCE)
        await self._attach(forked.id, forked.id, servers, replay=False)
        return ForkSessionResponse(session_id=forked.id, **self._menus(forked))

    @translated
    async def list_sessions(
        self, cwd: str | None = None, cursor: str | None = None, **kwargs: Any
    ) -> ListSessionsResponse:
        workdir = None if cwd is None else _check_workdir(cwd)
        found, following = await self._engine.services.database.read(session_listing.list_by_workdir, workdir, cursor)
        listed = [
            SessionInfo(
                session_id=one.session.id,
                cwd=one.workdir,
                title=one.session.display_title,
                updated_at=iso(one.session.summary.updated_at),
            )
            for one in found
        ]
        return ListSessionsResponse(sessions=listed, next_cursor=following)

    @translated
    async def close_session(self, session_id: str, **kwargs: Any) -> CloseSessionResponse:
        """Stop the running turn and leave the session, which ends; `session/load` opens it again."""
        found = self._find(session_id)
        await found.cancel()
        del self._sessions[session_id]
        await found.close()
        await self._services.tools.close(found.session_id)
        await self._engine.owned.leave(found.session_id)
        return CloseSessionResponse()

    @translated
    async def set_config_option(
        self, config_id: str, session_id: str, value: str | bool, **kwargs: Any
    ) -> SetSessionConfigOptionResponse:
        found = self._find(session_id)
        if config_id != config_options.MODEL or not isinstance(value, str):
            raise Invalid(f"there is no option {config_id[:100]!r} with the value {str(value)[:100]!r}")
        providers.parse(value)
        opened = await self._engine.open(OpenRequest(ref=found.session_id, model=value))
        return SetSessionConfigOptionResponse(**self._menus(opened.session))

    @translated
    async def set_session_mode(self, session_id: str, mode_id: str, **kwargs: Any) -> SetSessionModeResponse:
        """Change the permission mode. It holds for every call that has not started."""
        found = self._find(session_id)
        await self._engine.actions.set_mode(found.session_id, parse_mode(mode_id), by=LOCAL_USER)
        return SetSessionModeResponse()

    # turns

    @translated
    async def prompt(self, session_id: str, prompt: list[Block], **kwargs: Any) -> PromptResponse:
        found = self._find(session_id)
        parts = to_parts(prompt)
        with found.unsent() as cancelled:
            async with running(self._services.tools.wait_until_ready(found.session_id)) as (ready,):
                await wait_for_first(ready, cancelled)
            if cancelled.done():
                return PromptResponse(stop_reason="cancelled")
            if (line := _command_line(parts)) is not None:
                return await self._run_command(found, line, cancelled)
        return PromptResponse(stop_reason=await found.prompt(parts))

    async def _run_command(
        self, session: EditorSession, line: str, cancelled: "asyncio.Future[None]"
    ) -> PromptResponse:
        """Run a slash command until it ends or is cancelled. One that sends a message waits for its turn."""
        stop_reason = "end_turn"

        async def say(parts: tuple[Content, ...], instead: Rewind | None, goal: GoalSet | None) -> None:
            nonlocal stop_reason
            session.mark_sent(cancelled)
            stop_reason = await session.prompt(parts, instead, goal)

        context = EditorCommandContext(
            self._engine,
            self._services.settings,
            session.session_id,
            session.workdir,
            say,
            self._services.open_index,
        )
        async with running(slash.run(context, line)) as (command,):
            await wait_for_first(command, cancelled)
            if command.done():
                command.result()
            else:
                stop_reason = "cancelled"
        if context.shown:
            await session.send(helpers.update_agent_message_text("\n".join(context.shown)))
        return PromptResponse(stop_reason=stop_reason)  # type: ignore[arg-type] # one of the reasons

    async def cancel(self, session_id: str, **kwargs: Any) -> None:
        found = self._sessions.get(session_id)
        if found is None:
            logger.info("the editor cancelled the unknown session %s", session_id[:100])
        else:
            await found.cancel()

    async def ext_method(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        raise RequestError.method_not_found(f"_{method}")

    async def ext_notification(self, method: str, params: dict[str, Any]) -> None:
        """Extensions of other agents are ignored, as the protocol says."""

    # helpers

    async def _reopen(self, cwd: str, name: str, mcp_servers: list[Any] | None, *, replay: bool) -> Session:
        _check_workdir(cwd)
        servers = parse_servers(mcp_servers)
        session = await self._resolve(name)
        if session.summary.ended_at is not None:
            await self._engine.actions.reopen(session.id, reason=OPENED)
        await self._attach(name, session.id, servers, replay=replay)
        return await self._engine.services.database.read(sessions.get, session.id)

    async def _attach(self, name: str, session_id: str, servers: list[McpServer], *, replay: bool) -> None:
        """Open the session under the name that the editor uses. One that is open already is opened again."""
        files = self._capabilities.fs
        async with self._opening:
            workdir = await self._engine.services.database.read(_workdir, session_id)
            buffers = EditorBuffers(
                self._client,
                name,
                can_read=bool(files and files.read_text_file),
                can_write=bool(files and files.write_text_file),
            )
            await self._services.tools.open(session_id, servers, buffers)
            opened = self._sessions.get(name)
            if opened is None or opened.session_id != session_id:
                if opened is not None:
                    await opened.close()
                opened = EditorSession(self._engine, self._services, self._client, name, session_id, workdir)
            try:
                await self._engine.owned.keep(session_id, OPENED)
                await opened.open(replay=replay)
            except BaseException:
                self._sessions.pop(name, None)
                await opened.close()
                raise
            self._sessions[name] = opened
            opened.follow()

    async def _resolve(self, name: str) -> Session:
        def work(tx: Transaction) -> Session:
            return sessions.resolve(tx, name).session

        return await self._engine.services.database.read(work)

    def _find(self, name: str) -> EditorSession:
        found = self._sessions.get(name)
        if found is None:
            raise NotFound(f"session {name[:100]!r} is not open here; open it with session/load or session/resume")
        return found

    def _menus(self, session: Session) -> dict[str, Any]:
        modes = config_options.describe_modes(session.summary.mode)
        return {"modes": modes, "config_options": self._options(session)}

    def _options(self, session: Session) -> list[Any]:
        return list(config_options.describe_options(session.summary.model, self._services.settings))


def _command_line(parts: tuple[Content, ...]) -> str | None:
    """The slash command that the parts are; None if they are a message. A file that it names is a part of its own."""
    line = text_of(parts)
    is_command = all(isinstance(part, Text) for part in parts) and slash.parse(line) is not None
    return line if is_command else None


def _check_workdir(cwd: str) -> Path:
    """The directory. Raises Invalid unless it is an absolute path."""
    check_path_text(cwd)
    path = Path(cwd)
    if not path.is_absolute():
        raise Invalid(f"cwd must be an absolute path, not {cwd[:200]!r}")
    return path


def _workdir(tx: Transaction, session_id: str) -> Path:
    return Path(session_listing.recorded_workdir(tx, session_id) or "/")
