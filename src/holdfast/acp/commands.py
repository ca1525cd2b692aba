"""Slash commands typed in an editor. Their output is shown, and is not part of the session."""

from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from acp.schema import AvailableCommand, AvailableCommandInput, UnstructuredCommandInput

from holdfast.engine.admission.open_session import OpenRequest
from holdfast.engine.admission.rewind import Rewind
from holdfast.engine.engine import Engine
from holdfast.engine.process_port import list_running
from holdfast.model.errors import Busy, Invalid
from holdfast.model.event import GoalSet
from holdfast.model.memory.owner import LOCAL_OWNER
from holdfast.model.message import Content
from holdfast.model.mode import LOCAL_USER, Mode
from holdfast.providers import registry as providers
from holdfast.settings import Settings
from holdfast.slash import registry
from holdfast.slash.context import CommandChoice, Preview, RunningProcess
from holdfast.slash.registry import OwnCommand, SlashCommand
from holdfast.store.repos import sessions
from holdfast.store.repos.input_queue import InputMode

if TYPE_CHECKING:
    from holdfast.store.search.index import SearchIndex

WITHHELD = {"new", "undo-reset", "resume", "fork", "takeover", "quit", "busy", "stop"}
"""Commands that belong to the editor's own interface."""
Say = Callable[[tuple[Content, ...], Rewind | None, GoalSet | None], Awaitable[None]]


def available(home: Path, workdir: Path) -> list[AvailableCommand]:
    """The commands that an editor offers, the user's own and the skills among them."""
    built_in = [command for command in registry.COMMANDS if command.name not in WITHHELD]
    offered: list[SlashCommand | OwnCommand] = [*built_in, *registry.list_own(home, workdir)]
    return [
        AvailableCommand(name=command.name, description=command.help, input=_input(command.usage))
        for command in offered
    ]


def _input(usage: str) -> AvailableCommandInput | None:
    return AvailableCommandInput(root=UnstructuredCommandInput(hint=usage)) if usage else None


class EditorCommandContext:
    """See `slash.context.CommandContext`. One object per command."""

    def __init__(
        self,
        engine: Engine,
        settings: Settings,
        session_id: str,
        workdir: Path,
        say: Say,
        open_index: Callable[[], Awaitable["SearchIndex"]],
    ) -> None:
        self.engine: Engine = engine
        self.settings: Settings = settings
        self.workdir: Path = workdir
        self.session_id: str | None = session_id
        self.source: str = "chat"
        self.user: str = ""
        self.memory_owner: str = LOCAL_OWNER
        self.busy: InputMode = "queue"
        self.has_list: bool = False
        self.shown: list[str] = []
        self._id = session_id
        self._say = say
        self._open_index = open_index

    def show(self, text: str) -> None:
        self.shown.append(text)

    def confirm(self, text: str) -> None:
        self.show(text)

    async def choose(
        self, question: str, options: Sequence[CommandChoice], preview: Preview | None = None
    ) -> str | None:
        self.show("\n".join([question, *(one.label for one in options)]))
        return None

    async def require_idle(self) -> None:
        current = await self.engine.services.database.read(sessions.get, self._id)
        if current.summary.open_turn is not None:
            raise Busy("a turn is running; wait for it, or stop it")

    async def switch_session(self, session_id: str | None, *, title: str | None = None) -> None:
        raise Invalid("an editor opens other sessions in its own list of threads")

    async def say(
        self, parts: tuple[Content, ...], *, instead: Rewind | None = None, goal: GoalSet | None = None
    ) -> None:
        await self._say(parts, instead, goal)

    async def change_model(self, name: str) -> bool:
        providers.parse(name)
        try:
            await self.engine.open(OpenRequest(ref=self._id, model=name))
        except Busy:
            return False
        return True

    async def permission_mode(self) -> Mode:
        return (await self.engine.services.database.read(sessions.get, self._id)).summary.mode

    async def change_mode(self, mode: Mode) -> None:
        await self.engine.actions.set_mode(self._id, mode, by=LOCAL_USER)

    def take_back(self, parts: tuple[Content, ...]) -> bool:
        return False

    async def search_index(self) -> "SearchIndex":
        return await self._open_index()

    async def processes(self) -> Sequence[RunningProcess]:
        found = await list_running(self.engine.services.database, self.engine.processes, self._id)
        return [RunningProcess(one.id, f"{seen.kind}: {one.command} ({seen.evidence})") for one, seen in found]

    def follow_output(self, process_id: str) -> bool:
        """See `CommandContext.follow_output`."""
        return False

    async def kill(self, process_id: str) -> str:
        if self.engine.processes is None:
            raise Invalid(f"no background process {process_id}")
        ended = await self.engine.processes.stop(await self.engine.processes.get(process_id), "stopped by the user")
        return f"{ended.id} stopped: {ended.end_reason}"

    def quit(self) -> None:
        raise Invalid("close the thread in the editor")
