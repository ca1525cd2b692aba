"""Where a person sits in a chat: the current session, how it begins, is changed and is left."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from holdfast.app import App
from holdfast.engine.engine import Engine
from holdfast.engine.opening import Opening
from holdfast.engine.rewind import Rewind
from holdfast.model.entry import Entry
from holdfast.model.errors import Busy, Invalid
from holdfast.model.event import Renewed
from holdfast.model.message import Content, Text
from holdfast.model.session import Session
from holdfast.providers import choose
from holdfast.settings import Settings
from holdfast.slash.seat import Option, Preview, Running
from holdfast.store import sessions
from holdfast.store.inputs import Mode

if TYPE_CHECKING:
    from holdfast.store.search import SearchIndex


HOLDS_BACK = ", holds back a reset"


def folder_name(workdir: Path) -> str:
    """The name under which the last chat of a folder is found again."""
    return f"folder:{workdir}"


class ChatSeat(ABC):
    """What the chat in a terminal and the one line by line have in common. See `slash.seat.Seat`."""

    def __init__(self, app: App, engine: Engine, opening: Opening) -> None:
        self.engine: Engine = engine
        self.settings: Settings = app.settings
        self.workdir: Path = opening.workdir or Path.cwd()
        self.session_id: str | None = None
        self.busy: Mode = app.settings.agent.busy
        self._app = app
        self._opening = msgspec.structs.replace(opening, ref=None)

    @property
    def model(self) -> str:
        """The model of a session that has not begun."""
        return self._opening.model or self.settings.model

    @abstractmethod
    def tell(self, text: str) -> None:
        """See `Seat.tell`."""

    def confirm(self, text: str) -> None:
        """See `Seat.confirm`."""
        self.tell(text)

    @abstractmethod
    async def arrive(self, session: Session | None, entries: Sequence[Entry]) -> None:
        """Show the session that is now the current one, from its log; None for one that is still to begin."""

    @abstractmethod
    async def depart(self) -> None:
        """Take the eyes off the session that is about to be left."""

    @abstractmethod
    def leave(self) -> None:
        """See `Seat.leave`."""

    async def choose(self, question: str, options: Sequence[Option], preview: Preview | None = None) -> str | None:
        return None

    async def begin(self) -> str:
        """The current session; it begins with the first words."""
        if self.session_id is None:
            opened = await self.engine.open(self._opening)
            await self.engine.bookmark(folder_name(self.workdir), opened.session.id)
            self._opening = msgspec.structs.replace(self._opening, title=None)
            self.session_id = opened.session.id
        elif (fresh := await self.engine.freshen(self.session_id)).id != self.session_id:
            await self._go_on_in(fresh.id)
        return self.session_id

    async def _go_on_in(self, session_id: str) -> None:
        """A reset was due: another session has taken the place of this one."""
        await self.depart()
        session, entries = await self.engine.read(session_id)
        await self.take_up((session, entries))
        for entry in entries:
            if isinstance(entry.event, Renewed):
                self.tell(entry.event.notice)

    async def say(self, parts: tuple[Content, ...], *, instead: Rewind | None = None) -> None:
        session_id = await self.begin() if instead is None else instead.session_id
        await self.engine.admit(session_id, parts, mode=self.busy, instead=instead)

    async def say_text(self, text: str) -> None:
        await self.say((Text(text),))

    async def refuse_busy(self) -> None:
        if self.session_id is None:
            return
        current = await self.engine.ground.database.read(sessions.get, self.session_id)
        if current.lease_worker == self.engine.ground.worker_id:
            what = "a turn" if current.summary.open_turn is not None else "a compaction"
            raise Busy(f"{what} is under way here; let it end, or interrupt it with Ctrl-C")

    async def move(self, session_id: str | None, *, title: str | None = None) -> None:
        """The other session is proved whole before this one is left."""
        await self.refuse_busy()
        proved = None if session_id is None else await self.engine.read(session_id)
        left, self.session_id = self.session_id, None
        await self.depart()
        if left is not None:
            await self.engine.owned.leave(left)
        self._opening = msgspec.structs.replace(self._opening, title=title)
        await self.take_up(proved)

    async def take_up(self, proved: tuple[Session, list[Entry]] | None) -> None:
        """Make this session the current one, with all that was said in it."""
        if proved is None:
            await self.arrive(None, [])
            return
        session, entries = proved
        self.session_id = session.id
        await self.engine.bookmark(folder_name(self.workdir), session.id)
        await self.engine.owned.keep(session.id, "it was taken up again in a chat")
        await self.arrive(session, entries)

    async def say_goodbye(self) -> None:
        """End the session; it can be taken up again at any time."""
        if self.session_id is not None:
            await self.engine.owned.leave(self.session_id)
            print(f"Kept as {self.session_id}; 'holdfast chat --resume {self.session_id}' takes it up again.")

    async def change_model(self, name: str) -> None:
        choose.parse(name)
        if self.session_id is None:
            self._opening = msgspec.structs.replace(self._opening, model=name)
        else:
            await self.engine.open(Opening(ref=self.session_id, model=name))

    async def index(self) -> "SearchIndex":
        return await self._app.search()

    async def processes(self) -> Sequence[Running]:
        if self.session_id is None:
            return []
        return [
            Running(process.id, f"{seen.kind}{HOLDS_BACK if seen.blocks else ''}: {process.command} ({seen.evidence})")
            for process, seen in await self.engine.running(self.session_id)
        ]

    async def kill(self, process_id: str) -> str:
        registry = self.engine.processes
        if registry is None:
            raise Invalid(f"there is no background process {process_id}")
        ended = await registry.stop(await registry.get(process_id), "ended by a person")
        return f"{ended.id} has ended: {ended.end_reason}"
