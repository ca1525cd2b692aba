"""The eyes of a terminal: they follow one session's log and what is beside it, and see to it that it is somebody's.

What is shown comes from here alone, whether this process plays the turns or another one does.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import aclosing

from holdfast.cli.chat import greeting
from holdfast.cli.chat.paint import Paint
from holdfast.cli.chat.state import State, look
from holdfast.cli.chat.status import Spent
from holdfast.cli.chat.story import Story
from holdfast.engine.engine import Engine
from holdfast.engine.together import all_of
from holdfast.model.entry import Entry
from holdfast.model.event import TurnEnded, TurnStarted
from holdfast.model.session import Session

LOOK_SECONDS = 2.0
"""How often it is looked whether the other terminal of a session still lives."""
Show = Callable[[str], None]


class Watching:
    """One session as one terminal sees it. `show` prints lines with colours for good; nothing is shown twice."""

    def __init__(self, engine: Engine, paint: Paint, show: Show, redraw: Callable[[], None]) -> None:
        self._engine = engine
        self._paint = paint
        self._show = show
        self._redraw = redraw
        self._ours = ""
        self.story = Story(paint, time.monotonic)
        self.spent = Spent()
        self.state: State | None = None
        self.processes = 0
        self.is_offered = False
        """Whether the person is asked to go on with a turn that was cut off."""

    @property
    def is_working(self) -> bool:
        """Whether a turn is under way, here or elsewhere."""
        is_held = self.state is None or self.state.session.lease_worker is not None
        return self.story.turn_id is not None and is_held

    def tell(self, text: str) -> None:
        """Lines that are no part of the session."""
        self._show(self._paint.rows(text, "yellow" if text.startswith("!") else "dim"))

    async def arrive(self, session: Session, entries: Sequence[Entry]) -> None:
        """Show which session this is and how it went on last."""
        for entry in entries:
            self.spent.take(entry)
        self.state = await self._look(session.id)
        self._show(self._paint.plain(greeting.welcome(session, self.state, self._engine.ground.worker_id), "dim"))
        self._show("".join(self.story.take(entry) for entry in greeting.last_exchanges(entries)))
        self._offer()

    async def watch(self, session_id: str, *, after: int) -> None:
        """Follow the session from behind an event on; for ever."""
        await all_of(self._news(session_id, after), self._observe(session_id), self._mind_the_other(session_id))

    async def _news(self, session_id: str, after: int) -> None:
        async with aclosing(self._engine.news(session_id, after=after)) as news:
            async for item in news:
                self._show(self.story.take(item))
                if isinstance(item, Entry):
                    self.spent.take(item)
                    self._mind_title(session_id, item)
                self._redraw()

    def _mind_title(self, session_id: str, entry: Entry) -> None:
        """Have the session named after the first exchange that was played here."""
        event, titles = entry.event, self._engine.titles
        if isinstance(event, TurnStarted) and event.worker_id == self._engine.ground.worker_id:
            self._ours = event.turn_id
        is_done = isinstance(event, TurnEnded) and (event.turn_id, event.outcome) == (self._ours, "done")
        if is_done and titles is not None:
            titles.give(session_id)

    async def _observe(self, session_id: str) -> None:
        """Keep an eye on what is beside the log: who has the session open, what waits, what is asked, what runs."""
        async for _ in self._engine.ground.database.listen(session_id):
            before, self.state = self.state, await self._look(session_id)
            self.processes = len(await self._engine.running(session_id))
            if before is not None and before.session.lease_worker != self.state.session.lease_worker:
                self._offer()  # somebody has begun to work on it, or has stopped
            # Nobody has it open any more but this terminal: then it is ours.
            if self.state.session.owner_worker is None and await self._engine.owned.keep(session_id):
                self.state = await self._look(session_id)
                self.tell("[the other terminal has left; the session is open here]")
            self._redraw()

    async def _mind_the_other(self, session_id: str) -> None:
        """If the terminal that has the session open dies, or plays a turn in it, see to it that this is known here.

        The session is taken over, and whoever is left is offered to go on with the turn.
        """
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            session = None if self.state is None else self.state.session
            if session is None or session.owner_worker is None:
                continue
            ours = self._engine.ground.worker_id
            if {session.owner_worker, session.lease_worker} <= {ours, None}:
                continue
            if await self._engine.owned.keep(session_id) and session.owner_worker != ours:
                self.state = await self._look(session_id)
                self.tell("! the other terminal is gone; the session is open here now")
                self._offer()
                self._redraw()

    async def _look(self, session_id: str) -> State:
        return await self._engine.ground.database.read(look, session_id)

    def _offer(self) -> None:
        """An open turn that nobody works on may be gone on with."""
        session = None if self.state is None else self.state.session
        self.is_offered = session is not None and session.summary.open_turn is not None and session.lease_worker is None
