"""Where a person sits who types a command into a messaging platform: what is told goes out with the outbox."""

from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.engine.engine import Engine
from holdfast.engine.opening import Opening
from holdfast.engine.rewind import Rewind
from holdfast.model.errors import Busy, Invalid
from holdfast.model.ids import looks_like_session
from holdfast.model.message import Content
from holdfast.model.session import Session
from holdfast.providers import choose
from holdfast.settings import Settings
from holdfast.slash.seat import Option, Preview, Running
from holdfast.store import sessions
from holdfast.store.inputs import Mode

if TYPE_CHECKING:
    from holdfast.store.search import SearchIndex

Find = Callable[[], Awaitable["SearchIndex"]]
Speak = Callable[[Session, tuple[Content, ...], Rewind | None], Awaitable[None]]
OFFERED = 10


class ChatSeat:
    """See `slash.seat.Seat`. One for each command."""

    def __init__(
        self, engine: Engine, settings: Settings, channel: str, *, owner: bool, find: Find, speak: Speak
    ) -> None:
        self.engine: Engine = engine
        self.settings: Settings = settings
        self.workdir: Path = settings.home / "files"
        self.session_id: str | None = None
        self.busy: Mode = settings.agent.busy
        self.told: list[str] = []
        self._channel = channel
        self._owner = owner
        self._find = find
        self._speak = speak

    def tell(self, text: str) -> None:
        self.told.append(text)

    def confirm(self, text: str) -> None:
        self.tell(text)

    async def choose(self, question: str, options: Sequence[Option], preview: Preview | None = None) -> str | None:
        """There is no list to choose from here; what could be chosen is shown instead."""
        mine = [
            one for one in options if self._owner or not looks_like_session(one.value) or await self._is_own(one.value)
        ]
        self.tell("\n".join([question, *(one.label for one in mine[:OFFERED])]))
        return None

    async def _is_own(self, session_id: str) -> bool:
        found = await self.engine.ground.database.read(sessions.get, session_id)
        return found.summary.channel == self._channel

    async def move(self, session_id: str | None, *, title: str | None = None) -> None:
        if session_id is None:
            await self._begin_anew(title)
            return
        if not self._owner and not await self._is_own(session_id) and not await self._is_fork_of_own(session_id):
            raise Invalid("that session is not one of this chat; only an owner may take it up here")
        await self.refuse_busy()
        await self.engine.read(session_id)  # it is proved whole before this one is left
        await self.engine.bookmark(self._channel, session_id)
        self.session_id = session_id
        self.tell(f"This chat goes on in {session_id}.")

    async def _is_fork_of_own(self, session_id: str) -> bool:
        found = await self.engine.ground.database.read(sessions.get, session_id)
        return self.session_id is not None and found.summary.parent_id == self.session_id

    async def _begin_anew(self, title: str | None) -> None:
        if self.session_id is None:
            return
        await self.refuse_busy()
        renewed = await self.engine.begin_anew(self.session_id)
        await self.engine.bookmark(self._channel, renewed.id)
        self.session_id = renewed.id
        if title is not None:
            at = self.engine.ground.clock.now()
            await self.engine.ground.database.write(sessions.rename, renewed.id, title, at=at)

    async def refuse_busy(self) -> None:
        if self.session_id is not None:
            current = await self.engine.ground.database.read(sessions.get, self.session_id)
            if current.summary.open_turn is not None:
                raise Busy("a turn is under way; let it end, or end it with /stop")

    async def say(self, parts: tuple[Content, ...], *, instead: Rewind | None = None) -> None:
        if self.session_id is None:
            raise Invalid("nothing has been said yet")
        session = await self.engine.ground.database.read(sessions.get, self.session_id)
        await self._speak(session, parts, instead)

    async def change_model(self, name: str) -> None:
        choose.parse(name)
        if self.session_id is None:
            raise Invalid("nothing has been said yet, so there is no session to change")
        await self.engine.open(Opening(ref=self.session_id, model=name))

    async def index(self) -> "SearchIndex":
        return await self._find()

    async def processes(self) -> Sequence[Running]:
        if self.session_id is None or self.engine.processes is None:
            return []
        registry = self.engine.processes
        found = await registry.list(session_id=self.session_id)
        return [Running(one.id, f"{one.command} ({registry.judge(one).evidence})") for one in found]

    async def kill(self, process_id: str) -> str:
        registry = self.engine.processes
        if registry is None:
            raise Invalid(f"there is no background process {process_id}")
        stopped = await registry.stop(await registry.get(process_id), "ended by a person")
        return f"{stopped.id}: {registry.judge(stopped).evidence}"

    def leave(self) -> None:
        self.tell("There is nothing to leave: this chat stays open. /new begins another session.")
