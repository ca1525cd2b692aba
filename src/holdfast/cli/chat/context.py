"""The state shared by both chat modes: the current session, and how it is created, switched and closed."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from holdfast.engine.admission.open_session import OpenRequest
from holdfast.engine.admission.rewind import Rewind
from holdfast.engine.engine import Engine
from holdfast.engine.process_port import list_running
from holdfast.engine.submission import NewMessage
from holdfast.model.entry import Entry
from holdfast.model.errors import Busy, Invalid
from holdfast.model.event import Event, GoalSet, Renewed, SessionOpened
from holdfast.model.memory.owner import LOCAL_OWNER
from holdfast.model.message import Content
from holdfast.model.mode import LOCAL_USER, Mode
from holdfast.model.sanitize import one_line
from holdfast.model.session import Session
from holdfast.model.text import counted
from holdfast.providers import registry as providers
from holdfast.settings import Settings
from holdfast.slash import queued
from holdfast.slash.context import CommandChoice, Preview, RunningProcess
from holdfast.store.repos import delegations, input_queue, sessions
from holdfast.store.repos.input_queue import InputMode
from holdfast.tools.home_guard import is_protected
from holdfast.wiring.store import App
from holdfast.wiring.workdir import session_workdir

if TYPE_CHECKING:
    from holdfast.store.search.index import SearchIndex


BLOCKS_RESET = ", blocks reset"
QUIT_WORDS = ("exit", "quit")
"""Words that quit, as in a shell."""


def is_quit_word(line: str) -> bool:
    """Whether a line quits without a slash."""
    return line.strip().lower() in QUIT_WORDS


def bookmark_name(workdir: Path) -> str:
    """The bookmark of the last chat in a directory."""
    return f"folder:{workdir}"


class TerminalChat(ABC):
    """What the full-screen chat and the line-mode chat share. Implements `slash.context.CommandContext`."""

    def __init__(self, app: App, engine: Engine, opening: OpenRequest) -> None:
        self.engine: Engine = engine
        self.settings: Settings = app.settings
        self._started_in = opening.workdir or Path.cwd()
        self.workdir: Path = self._started_in
        self.session_id: str | None = None
        self.source: str = opening.source
        self.user: str = ""
        self.memory_owner: str = LOCAL_OWNER
        self.busy: InputMode = app.settings.agent.busy
        self.has_list: bool = False
        self._app = app
        self._opening = msgspec.structs.replace(opening, ref=None)
        self._next_model: str | None = None
        """The model to switch to when no turn runs."""
        self._queued: set[str] = set()
        """Turn ids of messages that were queued here during another turn."""

    @property
    def opening_mode(self) -> Mode:
        """The permission mode of a session that does not exist yet."""
        return self._opening.mode or self.settings.agent.mode

    @property
    def model(self) -> str:
        """The model of a session that does not exist yet."""
        return self._opening.model or self.settings.model

    @abstractmethod
    def show(self, text: str) -> None:
        """See `CommandContext.show`."""

    def confirm(self, text: str) -> None:
        """See `CommandContext.confirm`."""
        self.show(text)

    @abstractmethod
    async def show_session(self, session: Session | None, entries: Sequence[Entry]) -> None:
        """Show the new current session from its log; None for one that does not exist yet."""

    @abstractmethod
    async def stop_watching(self) -> None:
        """Stop watching the current session before it is left."""

    @abstractmethod
    def quit(self) -> None:
        """See `CommandContext.quit`."""

    async def choose(
        self, question: str, options: Sequence[CommandChoice], preview: Preview | None = None
    ) -> str | None:
        return None

    async def ensure_session(self) -> str:
        """The id of the current session; the first message creates it."""
        if self.session_id is None:
            opened = await self.engine.open(self._opening)
            await self.engine.actions.bookmark(bookmark_name(self._started_in), opened.session.id)
            self._opening = msgspec.structs.replace(self._opening, title=None)
            self.session_id = opened.session.id
            return self.session_id
        await self.apply_model()
        if (fresh := await self.engine.resets.renew_if_due(self.session_id)).id != self.session_id:
            await self._continue_in(fresh.id)
        return self.session_id

    async def _continue_in(self, session_id: str) -> None:
        """Continue in the session that a due reset has created."""
        await self.stop_watching()
        session, entries = await self.engine.read(session_id)
        await self.open_session((session, entries))
        for entry in entries:
            if isinstance(entry.event, Renewed):
                self.show(entry.event.notice)

    async def say(
        self, parts: tuple[Content, ...], *, instead: Rewind | None = None, goal: GoalSet | None = None
    ) -> None:
        session_id = await self.ensure_session() if instead is None else instead.session_id
        mode = self.busy if goal is None else "queue"
        message = NewMessage(session_id, parts, mode=mode, instead=instead, goal=goal)
        admission = (await self.engine.submit(message)).admission
        if not admission.began:
            self._queued.add(admission.turn_id)

    async def take_back_queued(self, session_id: str) -> None:
        """Take back messages queued here: after an interrupt the user decides again what to send."""
        for item in reversed(await self.engine.services.database.read(input_queue.list_waiting, session_id)):
            if item.turn_id in self._queued and await self.engine.drop_queued(session_id, item.turn_id):
                self.take_back(queued.parts(item))

    async def require_idle(self) -> None:
        if self.session_id is None:
            return
        current = await self.engine.services.database.read(sessions.get, self.session_id)
        if current.lease_worker == self.engine.services.worker_id:
            what = "a turn" if current.summary.open_turn is not None else "a compaction"
            raise Busy(f"{what} is running here; wait for it, or interrupt it with Ctrl-C")

    async def switch_session(self, session_id: str | None, *, title: str | None = None) -> None:
        """The other session is verified before this one is left."""
        await self.require_idle()
        verified = None if session_id is None else await self.engine.read(session_id)
        left, self.session_id = self.session_id, None
        await self.stop_watching()
        if left is not None:
            await self.engine.owned.leave(left)
        self._opening = msgspec.structs.replace(self._opening, title=title)
        await self.open_session(verified)

    async def open_session(self, verified: tuple[Session, list[Entry]] | None) -> None:
        """Make this session the current one and show it."""
        if verified is None:
            self.work_in(self._started_in)
            await self.show_session(None, [])
            return
        session, entries = verified
        self.session_id = session.id
        directory = self._tools_directory(session, entries[0].event)
        is_usable = directory.is_dir() and not is_protected(directory, self.settings.home, ())
        self.work_in(directory if is_usable else self._started_in)
        await self.engine.actions.bookmark(bookmark_name(self._started_in), session.id)
        await self.engine.owned.keep(session.id, "it was resumed in a chat")
        await self.show_session(session, entries)
        if directory != self._started_in:
            self.show(f"The tools of this session work in {one_line(str(directory))}.")

    def work_in(self, directory: Path) -> None:
        """Use the directory for `@`, `!` and the user's own commands."""
        self.workdir = directory

    def _tools_directory(self, session: Session, opened: Event) -> Path:
        """The directory in which the session's tools work; that of the chat if they work on another machine."""
        if not isinstance(opened, SessionOpened):
            return session_workdir(session, None, self.settings)
        return self._started_in if opened.terminal == "ssh" else session_workdir(session, opened.workdir, self.settings)

    async def close_session(self) -> None:
        """Close the session and print how to resume it."""
        if self.session_id is not None:
            await self.apply_model()
            running = await self.engine.services.database.read(delegations.count_running, self.session_id)
            await self.engine.owned.leave(self.session_id)
            if running:
                print(f"Stopping {counted(running, 'sub-agent')} of this session.")
            print(f"Session saved. Resume it with: holdfast chat --resume {self.session_id}")

    async def change_model(self, name: str) -> bool:
        providers.parse(name)
        if self.session_id is None:
            self._opening = msgspec.structs.replace(self._opening, model=name)
            return True
        self._next_model = name
        return await self.apply_model()

    async def apply_model(self) -> bool:
        """Apply a requested model change; False if a running turn delays it."""
        if self._next_model is None or self.session_id is None:
            return True
        try:
            await self.engine.open(OpenRequest(ref=self.session_id, model=self._next_model))
        except Busy:
            return False
        self._next_model = None
        return True

    async def permission_mode(self) -> Mode:
        """See `CommandContext.permission_mode`."""
        if self.session_id is None:
            return self.opening_mode
        return (await self.engine.services.database.read(sessions.get, self.session_id)).summary.mode

    async def change_mode(self, mode: Mode) -> None:
        """See `CommandContext.change_mode`."""
        if self.session_id is None:
            self._opening = msgspec.structs.replace(self._opening, mode=mode)
        else:
            await self.engine.actions.set_mode(self.session_id, mode, by=LOCAL_USER)

    def take_back(self, parts: tuple[Content, ...]) -> bool:
        """See `CommandContext.take_back`."""
        return False

    async def search_index(self) -> "SearchIndex":
        return await self._app.search()

    async def processes(self) -> Sequence[RunningProcess]:
        if self.session_id is None:
            return []
        return [
            RunningProcess(
                process.id, f"{seen.kind}{BLOCKS_RESET if seen.blocks else ''}: {process.command} ({seen.evidence})"
            )
            for process, seen in await list_running(
                self.engine.services.database, self.engine.processes, self.session_id
            )
        ]

    def follow_output(self, process_id: str) -> bool:
        """See `CommandContext.follow_output`."""
        return False

    async def kill(self, process_id: str) -> str:
        registry = self.engine.processes
        if registry is None:
            raise Invalid(f"no background process {process_id}")
        ended = await registry.stop(await registry.get(process_id), "stopped by the user")
        return f"{ended.id} stopped: {ended.end_reason}"
