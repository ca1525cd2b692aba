"""The chat in a terminal. All that is shown comes from the log and the drafts, so every terminal on a session shows the same."""

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any

from prompt_toolkit.buffer import Buffer
from prompt_toolkit.input import Input
from prompt_toolkit.output import Output

from holdfast.app import App
from holdfast.assemble import window
from holdfast.cli.chat import greeting
from holdfast.cli.chat.asking import Asked, next_question
from holdfast.cli.chat.cells import faint, wrapped
from holdfast.cli.chat.complete import ChatCompleter
from holdfast.cli.chat.history import FILE, InputHistory
from holdfast.cli.chat.keys import bindings
from holdfast.cli.chat.paint import Paint
from holdfast.cli.chat.pasting import Pasteboard
from holdfast.cli.chat.screen import Screen
from holdfast.cli.chat.seat import ChatSeat
from holdfast.cli.chat.status import status_line
from holdfast.cli.chat.watching import Watching
from holdfast.engine.engine import Engine
from holdfast.engine.opening import Opening
from holdfast.engine.together import stop
from holdfast.interop.visible import one_line
from holdfast.model.entry import Entry
from holdfast.model.errors import HoldfastError
from holdfast.model.message import text_of
from holdfast.model.session import Session
from holdfast.slash import registry
from holdfast.slash.seat import Option, Preview

LEAVE_SECONDS = 10.0
"""How long a turn may take to end when the person leaves."""
LONG = "compact"
"""The command that takes its time: words typed meanwhile are said at once, and wait in the store as in a turn."""


class Terminal(ChatSeat):
    """The person's seat at a terminal, and all that is drawn on it."""

    def __init__(self, app: App, engine: Engine, opening: Opening, source: Input, output: Output) -> None:
        super().__init__(app, engine, opening)
        self._source, self._output = source, output
        self._board = Pasteboard()
        self._typed: asyncio.Queue[str] = asyncio.Queue()
        self._tasks: set[asyncio.Task[None]] = set()
        self._follower: asyncio.Task[None] | None = None
        self._failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._leaving = False
        self._long: asyncio.Task[None] | None = None
        """A command that is still at work."""
        self._windows: dict[str, int] = {}
        self.buffer = Buffer(
            completer=ChatCompleter(engine.ground.database, self.workdir),
            history=InputHistory(self.settings.home / FILE),
            complete_while_typing=True,
            multiline=True,
        )
        keys = bindings(
            self.buffer,
            self._board,
            submit=self.enter,
            interrupt=self.interrupt,
            leave=self.leave,
        )
        self.screen = Screen(self, self.buffer, keys, source, output)
        self._paint = Paint(lambda: self.screen.columns)
        self._watching = self._new_eyes()

    # what the screen shows

    def live(self) -> str:
        return self._watching.story.live(is_working=self.is_moving())

    def waiting(self) -> str:
        state = self._watching.state
        items = [] if state is None else state.waiting
        return "\n".join(f"queued ❯ {one_line(text_of(item.said.parts))[:200]}" for item in items if item.said)

    def question(self) -> str:
        asked = self._question()
        return "" if asked is None else wrapped(asked.text, self.screen.columns - 1)

    def status(self) -> str:
        state, spent = self._watching.state, self._watching.spent
        session = None if state is None else state.session
        share = spent.context / self._window(session) if spent.context else 0.0
        return status_line(
            session,
            self.model,
            share=share,
            cost=spent.cost,
            busy=self.busy,
            processes=self._watching.processes,
            width=self.screen.columns - 1,
        )

    def _window(self, session: Session | None) -> int:
        """How much the session's model holds, asked once for each model."""
        model = session.summary.model if session is not None and session.summary.model else self.model
        if model not in self._windows:
            self._windows[model] = window(self.settings, model)
        return self._windows[model]

    def is_moving(self) -> bool:
        """A turn that only waits for the person's word does not."""
        return self._watching.is_working and (self._watching.story.is_acting or self._question() is None)

    def is_working(self) -> bool:
        """Whether a turn is under way."""
        return self._watching.is_working

    def tell(self, text: str) -> None:
        self._watching.tell(text)

    def confirm(self, text: str) -> None:
        if self.session_id is None:  # there is no log yet that would tell it
            self.tell(text)

    # the whole of it

    async def run(self, first: tuple[Session, list[Entry]] | None) -> None:
        """Talk until the person leaves. Raises what ended it otherwise."""
        self.screen.show(
            faint(greeting.greeting(greeting.model_of(first, self.model), self.settings), self._paint.width)
        )
        await self.take_up(first)
        work: list[asyncio.Future[Any]] = [
            asyncio.create_task(self.screen.run(), name="screen"),
            asyncio.create_task(self.screen.animate(), name="animate"),
            asyncio.create_task(self._listen(), name="typed"),
            self._failed,
        ]
        try:
            done, _ = await asyncio.wait([*work, self.engine.death], return_when=asyncio.FIRST_COMPLETED)
            for ended in done:
                ended.result()
        finally:
            await stop(*(task for task in work if task is not self._failed), *self._tasks)

    def start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Do it beside everything else; a failure that nobody thought of ends the chat."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None and not self._failed.done():
            self._failed.set_exception(error)

    # what the person types

    def enter(self, text: str) -> None:
        """As if the person had typed it."""
        self._typed.put_nowait(text)

    async def _listen(self) -> None:
        while True:
            text = await self._typed.get()
            try:
                await self._heard(text)
            except HoldfastError as e:
                self._not_said(text, e)
            self.screen.redraw()

    async def _heard(self, text: str) -> None:
        asked = self._question()
        command = registry.parse(text)
        if command is not None:
            self.screen.show("\n" + self._paint.indented("❯ ", text.strip(), mark_style="cyan", style="dim"))
            if command[0] == LONG and self._long is None:
                self._long = self.start(self._run(text))
            else:
                await registry.run(self, text)
        elif asked is not None and await self._answer(asked, text.strip()):
            return
        else:
            self._watching.is_offered = False
            await self.say_text(self._board.expand(text))

    async def _run(self, text: str) -> None:
        """Do what takes its time, beside everything else, until it is done or the person stops it."""
        try:
            await registry.run(self, text)
        except asyncio.CancelledError:
            self.tell("The compaction was stopped; the context is as it was.")
            raise
        finally:
            self._long = None
            self.screen.redraw()

    def _not_said(self, text: str, error: HoldfastError) -> None:
        """Words that could not be kept go back into the line: nothing that is not saved looks as if it were."""
        self.tell(f"! not said: {error}")
        if not self.buffer.text:
            self.buffer.text = text
            self.buffer.cursor_position = len(text)

    def interrupt(self, *, leaving: bool = False) -> bool:
        """Ask the running turn to end, or stop a command that is at work; False if nothing runs."""
        if self._long is not None:
            self._long.cancel()
            return True
        if not self.is_working() or self.session_id is None:
            return False
        self.start(self._interrupt(self.session_id, leaving=leaving))
        return True

    async def _interrupt(self, session_id: str, *, leaving: bool) -> None:
        await self.engine.interrupt(session_id, leaving=leaving)

    def leave(self) -> None:
        """Leave once the turn has ended, which is asked to; the second time at once."""
        if self._leaving:
            self.exit()
            return
        self._leaving = True
        self.start(self._leave())

    async def _leave(self) -> None:
        if self.interrupt(leaving=True):
            self.tell("Leaving; the turn is ended first.")
            try:
                async with asyncio.timeout(LEAVE_SECONDS):
                    await self.engine.settled()
            except TimeoutError:
                pass  # it is left as a crash would have left it
        self.exit()

    def exit(self) -> None:
        if self.screen.app.is_running and not self.screen.app.is_done:
            self.screen.app.exit()

    # questions

    def _question(self) -> Asked | None:
        eyes = self._watching
        return next_question(eyes.state, self.engine.ground.worker_id, is_offered=eyes.is_offered)

    async def _answer(self, asked: Asked, text: str) -> bool:
        """Whether the words were an answer to the question."""
        answer = asked.understand(text)
        if answer is None:
            return False
        self._watching.is_offered = False
        told = await asked.give(self.engine, answer)
        if told:
            self.tell(told)
        return True

    async def choose(self, question: str, options: Sequence[Option], preview: Preview | None = None) -> str | None:
        from holdfast.cli.chat.picker import Picker

        async with self.screen.lent():
            return await Picker(question, options, preview, self._source, self._output).choose()

    # the session

    async def begin(self) -> str:
        is_new = self.session_id is None
        session_id = await super().begin()
        if is_new:
            self._follow(session_id, after=0)
        return session_id

    async def depart(self) -> None:
        if self._follower is not None:
            await stop(self._follower)
        self._follower = None
        self._watching = self._new_eyes()

    async def arrive(self, session: Session | None, entries: Sequence[Entry]) -> None:
        if session is not None:
            await self._watching.arrive(session, entries)
            self._follow(session.id, after=entries[-1].seq)

    def _follow(self, session_id: str, *, after: int) -> None:
        self._follower = self.start(self._watching.watch(session_id, after=after))

    def _new_eyes(self) -> Watching:
        return Watching(self.engine, self._paint, self.screen.show, self.screen.redraw)
