"""A seat without a face: it writes down what it was told, and answers questions as the test says."""

from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from holdfast.engine.opening import Opening
from holdfast.engine.rewind import Rewind
from holdfast.model.errors import Busy, Invalid
from holdfast.model.message import Content, Text
from holdfast.settings import Settings
from holdfast.slash.seat import Option, Preview, Running
from holdfast.store.inputs import Mode
from holdfast.store.search import SearchIndex, open_index
from tests.engine.stage import Stage, set_up


class TestSeat:
    """Fills the port that chats and gateways fill."""

    __test__ = False

    def __init__(self, stage: Stage, folder: Path) -> None:
        self.stage = stage
        self.engine = stage.engine
        self.settings = Settings(home=folder, store="sqlite:///x", model="scripted:echo")
        self.workdir = folder
        self.session_id: str | None = None
        self.busy: Mode = "queue"
        self.told: list[str] = []
        self.answer: str | None = None
        self.offered: Sequence[Option] = ()
        self.previewed = ""
        self.running: list[Running] = []
        self.is_left = False
        self.is_busy = False
        self._index: SearchIndex | None = None

    def tell(self, text: str) -> None:
        self.told.append(text)

    def confirm(self, text: str) -> None:
        self.tell(text)

    @property
    def last(self) -> str:
        return self.told[-1]

    async def choose(self, question: str, options: Sequence[Option], preview: Preview | None = None) -> str | None:
        self.offered = options
        if preview is not None and self.answer is not None:
            self.previewed = await preview(self.answer)
        return self.answer

    async def refuse_busy(self) -> None:
        if self.is_busy:
            raise Busy("a turn is under way")

    async def move(self, session_id: str | None, *, title: str | None = None) -> None:
        await self.refuse_busy()
        if self.session_id is not None:
            await self.engine.owned.leave(self.session_id)
        self.session_id = session_id
        if session_id is not None:
            await self.engine.owned.keep(session_id)
        elif title is not None:
            self.told.append(f"(title {title})")

    async def say(self, parts: tuple[Content, ...], *, instead: Rewind | None = None) -> None:
        if self.session_id is None:
            opened = await self.engine.open(Opening(source="chat", own=True))
            self.session_id = opened.session.id
        async for _ in self.engine.say(self.session_id, parts, instead=instead):
            pass

    async def say_text(self, text: str) -> None:
        await self.say((Text(text),))

    async def change_model(self, name: str) -> None:
        if ":" not in name:
            raise Invalid(f"{name!r} names no model")
        await self.engine.open(Opening(ref=self.session_id, model=name))

    async def index(self) -> SearchIndex:
        self._index = self._index or await open_index(self.workdir / "search.db", self.stage.database)
        return self._index

    async def close(self) -> None:
        if self._index is not None:
            await self._index.close()

    async def processes(self) -> Sequence[Running]:
        return self.running

    async def kill(self, process_id: str) -> str:
        self.running = [one for one in self.running if one.id != process_id]
        return f"{process_id} was ended"

    def leave(self) -> None:
        self.is_left = True


@pytest.fixture
async def seat(tmp_path: Path) -> AsyncIterator[TestSeat]:
    stage = await set_up(tmp_path, model="echo")
    made = TestSeat(stage, tmp_path)
    yield made
    await made.close()
    await stage.engine.close()
    await stage.database.close()
