"""A command context without an interface: it records what is shown, and answers as the test says."""

from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from holdfast.engine.admission.open_session import OpenRequest
from holdfast.engine.admission.rewind import Rewind
from holdfast.engine.submission import NewMessage
from holdfast.model.errors import Busy, Invalid
from holdfast.model.event import GoalSet
from holdfast.model.memory.owner import LOCAL_OWNER
from holdfast.model.message import Content, Text, typed_text
from holdfast.model.mode import Mode
from holdfast.settings import Settings
from holdfast.slash.context import CommandChoice, Preview, RunningProcess
from holdfast.store.repos import sessions
from holdfast.store.repos.input_queue import InputMode
from holdfast.store.search.index import SearchIndex, open_index
from tests.engine.stage import Stage, set_up


class TestContext:
    """Implements the port of chats and gateways."""

    __test__ = False

    def __init__(self, stage: Stage, folder: Path) -> None:
        self.stage = stage
        self.engine = stage.engine
        self.settings = Settings(home=folder, store="sqlite:///x", model="scripted:echo")
        self.workdir = folder
        self.source = "chat"
        self.session_id: str | None = None
        self.busy: InputMode = "queue"
        self.has_list = False
        self.user = ""
        self.memory_owner = LOCAL_OWNER
        self.shown: list[str] = []
        self.answer: str | None = None
        self.offered: Sequence[CommandChoice] = ()
        self.previewed = ""
        self.running: list[RunningProcess] = []
        self.is_left = False
        self.line = ""
        """The text of the input line."""
        self.is_busy = False
        self._index: SearchIndex | None = None

    def show(self, text: str) -> None:
        self.shown.append(text)

    def confirm(self, text: str) -> None:
        self.show(text)

    @property
    def last(self) -> str:
        return self.shown[-1]

    async def choose(
        self, question: str, options: Sequence[CommandChoice], preview: Preview | None = None
    ) -> str | None:
        self.offered = options
        if preview is not None and self.answer is not None:
            self.previewed = await preview(self.answer)
        return self.answer

    async def require_idle(self) -> None:
        if self.is_busy:
            raise Busy("a turn is running")

    async def switch_session(self, session_id: str | None, *, title: str | None = None) -> None:
        await self.require_idle()
        if self.session_id is not None:
            await self.engine.owned.leave(self.session_id)
        self.session_id = session_id
        if session_id is not None:
            await self.engine.owned.keep(session_id)
        elif title is not None:
            self.shown.append(f"(title {title})")

    async def say(
        self, parts: tuple[Content, ...], *, instead: Rewind | None = None, goal: GoalSet | None = None
    ) -> None:
        if self.session_id is None:
            opened = await self.engine.open(OpenRequest(source="chat", own=True))
            self.session_id = opened.session.id
        turn = await self.engine.submit(NewMessage(self.session_id, parts, instead=instead, goal=goal), stream="live")
        async for _ in turn.follow():
            pass

    async def say_text(self, text: str) -> None:
        await self.say((Text(text),))

    def take_back(self, parts: tuple[Content, ...]) -> bool:
        self.line = typed_text(parts)
        return True

    async def change_model(self, name: str) -> bool:
        if ":" not in name:
            raise Invalid(f"{name!r} names no model")
        await self.engine.open(OpenRequest(ref=self.session_id, model=name))
        return True

    async def permission_mode(self) -> Mode:
        if self.session_id is None:
            return self.settings.agent.mode
        return (await self.stage.database.read(sessions.get, self.session_id)).summary.mode

    async def change_mode(self, mode: Mode) -> None:
        if self.session_id is None:
            raise Invalid("no session yet")
        await self.engine.actions.set_mode(self.session_id, mode, by="ann")

    async def search_index(self) -> SearchIndex:
        self._index = self._index or await open_index(self.workdir / "search.db", self.stage.database)
        return self._index

    async def close(self) -> None:
        if self._index is not None:
            await self._index.close()

    async def processes(self) -> Sequence[RunningProcess]:
        return self.running

    def follow_output(self, process_id: str) -> bool:
        return False

    async def kill(self, process_id: str) -> str:
        self.running = [one for one in self.running if one.id != process_id]
        return f"{process_id} was ended"

    def quit(self) -> None:
        self.is_left = True


@pytest.fixture
async def context(tmp_path: Path) -> AsyncIterator[TestContext]:
    stage = await set_up(tmp_path, model="echo")
    made = TestContext(stage, tmp_path)
    yield made
    await made.close()
    await stage.engine.close()
    await stage.database.close()
