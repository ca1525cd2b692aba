"""The command context of a chat on a messaging platform. Output goes to the outbox."""

from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.engine.admission.open_session import OpenRequest
from holdfast.engine.admission.rewind import Rewind
from holdfast.engine.engine import Engine
from holdfast.model.errors import Busy, Invalid
from holdfast.model.event import GoalSet
from holdfast.model.ids import looks_like_session
from holdfast.model.message import Content
from holdfast.model.mode import Mode
from holdfast.model.session import Session
from holdfast.providers import registry as models
from holdfast.settings import Settings
from holdfast.slash.context import CommandChoice, Preview, RunningProcess
from holdfast.store.repos import sessions
from holdfast.store.repos.input_queue import InputMode

if TYPE_CHECKING:
    from holdfast.store.search.index import SearchIndex

OpenIndex = Callable[[], Awaitable["SearchIndex"]]
SendMessage = Callable[[Session, tuple[Content, ...], Rewind | None, GoalSet | None], Awaitable[None]]
MAX_OFFERED = 10


class AwaitingAnswer(Exception):
    """Stops a command before it has any effect; the person's next message is the answer."""

    def __init__(self, answers: tuple[str, ...]) -> None:
        super().__init__(", ".join(answers))
        self.answers = answers


class ChannelCommandContext:
    """See `slash.context.CommandContext`. One object per command."""

    def __init__(
        self,
        engine: Engine,
        settings: Settings,
        channel: str,
        *,
        owner: bool,
        may_approve: bool,
        open_index: OpenIndex,
        send_message: SendMessage,
    ) -> None:
        self.engine: Engine = engine
        self.settings: Settings = settings
        self.workdir: Path = settings.home / "files"
        self.session_id: str | None = None
        self.source: str = "gateway"
        self.user: str = ""
        self.memory_owner: str = ""
        self.busy: InputMode = settings.agent.busy
        self.has_list: bool = False
        self.replies: list[str] = []
        self._channel = channel
        self._owner = owner
        self._may_approve = may_approve
        self._open_index = open_index
        self._send_message = send_message

    def show(self, text: str) -> None:
        self.replies.append(text)

    def confirm(self, text: str) -> None:
        self.show(text)

    async def choose(
        self, question: str, options: Sequence[CommandChoice], preview: Preview | None = None
    ) -> str | None:
        """Show the options. Sessions are only listed; for anything else, the next message is the answer.

        Raises AwaitingAnswer.
        """
        if options and not any(looks_like_session(one.value) for one in options):
            labels = [one.label for one in options]
            self.show("\n".join([question, *labels, "cancel: change nothing", "Answer with one of these words."]))
            raise AwaitingAnswer(tuple(one.value for one in options))
        visible = [
            one for one in options if self._owner or not looks_like_session(one.value) or await self._is_own(one.value)
        ]
        self.show("\n".join([question, *(one.label for one in visible[:MAX_OFFERED])]))
        return None

    async def _is_own(self, session_id: str) -> bool:
        found = await self.engine.services.database.read(sessions.get, session_id)
        return found.summary.channel == self._channel

    async def switch_session(self, session_id: str | None, *, title: str | None = None) -> None:
        if session_id is None:
            await self._start_new_session(title)
            return
        if not self._owner and not await self._is_own(session_id) and not await self._is_fork_of_own(session_id):
            raise Invalid("that session belongs to another chat; only an owner may resume it here")
        await self.require_idle()
        await self.engine.read(session_id)  # verify it before the chat leaves the current one
        await self.engine.actions.bookmark(self._channel, session_id)
        self.session_id = session_id
        self.show(f"This chat now continues session {session_id}.")

    async def _is_fork_of_own(self, session_id: str) -> bool:
        found = await self.engine.services.database.read(sessions.get, session_id)
        return self.session_id is not None and found.summary.parent_id == self.session_id

    async def _start_new_session(self, title: str | None) -> None:
        if self.session_id is None:
            return
        await self.require_idle()
        renewed = await self.engine.resets.replace(self.session_id)
        await self.engine.actions.bookmark(self._channel, renewed.id)
        self.session_id = renewed.id
        if title is not None:
            await self.engine.actions.rename(renewed.id, title)

    async def require_idle(self) -> None:
        if self.session_id is not None:
            current = await self.engine.services.database.read(sessions.get, self.session_id)
            if current.summary.open_turn is not None:
                raise Busy("a turn is running; wait for it, or end it with /stop")

    async def say(
        self, parts: tuple[Content, ...], *, instead: Rewind | None = None, goal: GoalSet | None = None
    ) -> None:
        if self.session_id is None:
            raise Invalid("this chat has no session yet")
        session = await self.engine.services.database.read(sessions.get, self.session_id)
        await self._send_message(session, parts, instead, goal)

    def take_back(self, parts: tuple[Content, ...]) -> bool:
        return False

    async def change_model(self, name: str) -> bool:
        models.parse(name)
        if self.session_id is None:
            raise Invalid("this chat has no session yet; send a message first")
        await self.engine.open(OpenRequest(ref=self.session_id, model=name))
        return True

    async def permission_mode(self) -> Mode:
        if self.session_id is None:
            return self.settings.agent.mode
        return (await self.engine.services.database.read(sessions.get, self.session_id)).summary.mode

    async def change_mode(self, mode: Mode) -> None:
        if not self._may_approve:
            raise Invalid("only an approver of this chat may change the permission mode")
        if self.session_id is None:
            raise Invalid("this chat has no session yet; send a message first")
        await self.engine.actions.set_mode(self.session_id, mode, by=self.user)

    async def search_index(self) -> "SearchIndex":
        return await self._open_index()

    async def processes(self) -> Sequence[RunningProcess]:
        if self.session_id is None or self.engine.processes is None:
            return []
        registry = self.engine.processes
        found = await registry.list(session_id=self.session_id)
        return [RunningProcess(one.id, f"{one.command} ({registry.classify(one).evidence})") for one in found]

    def follow_output(self, process_id: str) -> bool:
        """See `CommandContext.follow_output`."""
        return False

    async def kill(self, process_id: str) -> str:
        registry = self.engine.processes
        if registry is None:
            raise Invalid(f"there is no background process {process_id}")
        stopped = await registry.stop(await registry.get(process_id), "stopped by a user")
        return f"{stopped.id}: {registry.classify(stopped).evidence}"

    def quit(self) -> None:
        self.show("This chat stays open. Use /new to start another session.")
