"""The chat in line mode, for pipes and simple terminals: read a line, run its turn, read the next line.

A turn is committed before the next line is read.
"""

import asyncio
import contextlib
import signal
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing

from holdfast import config
from holdfast.cli import errors, signals, turn_output
from holdfast.cli.chat.context import TerminalChat, is_quit_word
from holdfast.cli.chat.output.banner import earlier_messages, model_name, session_header, startup_text
from holdfast.cli.chat.prompts import SHOW_ALL, TerminalPrompt, next_question, plain
from holdfast.cli.chat.resume import find_session
from holdfast.cli.chat.session_state import ChatState, load_state
from holdfast.cli.progress import Spinner
from holdfast.engine.admission.open_session import OpenRequest
from holdfast.engine.admission.rewind import Rewind
from holdfast.engine.engine import Engine
from holdfast.engine.goals.follow import follow_goal
from holdfast.engine.streaming.bus import LiveText
from holdfast.engine.submission import AdmittedTurn, NewMessage
from holdfast.model.answer import Answer
from holdfast.model.entry import Entry
from holdfast.model.errors import Unavailable
from holdfast.model.event import GoalSet
from holdfast.model.message import Content, Text
from holdfast.model.sanitize import one_line, visible
from holdfast.model.session import Session, messages, standing
from holdfast.settings import Settings
from holdfast.slash import registry
from holdfast.tasks import Tasks
from holdfast.wiring.engine import open_engine
from holdfast.wiring.store import App, open_app

SHOWN_ON_RESUME = 4


class LineModeChat(TerminalChat):
    """The chat of a user or a script on a pipe or a simple terminal."""

    is_quitting = False
    is_signalled = False
    """Whether a signal left a turn open; then the session is not closed."""
    inbox: signals.SignalInbox
    _asked: TerminalPrompt | None = None
    """The question that was printed and waits for an answer."""

    def show(self, text: str) -> None:
        print(visible(text))

    def quit(self) -> None:
        self.is_quitting = True

    async def stop_watching(self) -> None:
        """Line mode watches only during a turn; forget the open question."""
        self._asked = None

    async def show_session(self, session: Session | None, entries: Sequence[Entry]) -> None:
        """Print the session header and the latest messages."""
        if session is None:
            return
        state = await self.engine.services.database.read(load_state, session.id)
        print(session_header(session, state, self.engine.services.worker_id))
        said = messages(standing(entries))
        if earlier := earlier_messages(len(said) - SHOWN_ON_RESUME):
            print(earlier)
        for message in said[-SHOWN_ON_RESUME:]:
            print(f"{message.role}: {visible(message.text)}")
        self._show_question(self._question(state))
        if self._asked is None and session.summary.open_turn is not None and session.lease_worker is None:
            print("The last turn was interrupted; your next message closes it.")
        print()

    async def handle_input(self, line: str) -> None:
        if is_quit_word(line):
            self.quit()
        elif not await registry.run(self, line) and not await self._answer(line.strip()):
            await self.say((Text(line),))

    def _question(self, state: ChatState) -> TerminalPrompt | None:
        """The question about a call that needs approval, if there is one."""
        asked = next_question(state, self.engine.services.worker_id, is_offered=False)
        return asked if asked is not None and asked.about_call else None

    def _show_question(self, asked: TerminalPrompt | None) -> None:
        """Print the question in full, without colours. The next line is its answer."""
        self._asked = asked
        if asked is not None:
            print(plain(asked.all_details) + asked.text)

    async def _answer(self, text: str) -> bool:
        """Whether the line was used as an answer to the printed question."""
        if self._asked is None or self.session_id is None:
            return False
        state = await self.engine.services.database.read(load_state, self.session_id)
        asked = self._question(state)
        if asked is None or asked.id != self._asked.id:
            self.show("! That question is no longer open; your input was ignored.")
            self._show_question(asked)
        elif text.lower() in SHOW_ALL:
            self._show_question(asked)
        elif (answer := asked.parse(text)) is not None:
            self._asked = None
            await self._submit(state.session, asked, answer)
        elif asked.must_answer:
            self.show(f"Not sent. Answer the question with yes or no first.\n{asked.text}")
        else:
            return False
        return True

    async def _submit(self, session: Session, asked: TerminalPrompt, answer: Answer) -> None:
        """Submit the answer and show the rest of the turn, unless the question was answered elsewhere."""
        open_turn = AdmittedTurn(session, session.summary.open_turn or "", first=session.seq + 1, is_open=False)
        turn = await self.engine.submit(open_turn, stream="live")
        if notice := await asked.submit(self.engine, answer):
            turn.close()
            self.show(notice)
            return
        async with aclosing(turn.follow()) as items:
            await self._follow(session.id, items)

    async def say(
        self, parts: tuple[Content, ...], *, instead: Rewind | None = None, goal: GoalSet | None = None
    ) -> None:
        """Run one turn to its end; while the session has an active goal, all turns until that is over.

        Ctrl-C interrupts the turn and keeps its messages; without a terminal it also ends the chat.
        Any other signal leaves the turn open and ends the chat. A second signal ends the process.
        """
        session_id = await self.ensure_session() if instead is None else instead.session_id
        turn = await self.engine.submit(NewMessage(session_id, parts, instead=instead, goal=goal), stream="live")
        if goal is None:
            async with aclosing(turn.follow()) as items:
                await self._follow(session_id, items)
            return
        turn.close()
        await self.follow_goal(session_id, after=turn.admission.session.seq - len(turn.admission.entries))

    async def follow_goal(self, session_id: str, *, after: int) -> None:
        """Show the session's turns until its goal is over or paused."""
        watched = self.engine.watch(session_id, after=after)
        async with aclosing(follow_goal(watched, self.engine.services.database, session_id)) as items:
            await self._follow(session_id, items, to_the_end=True)

    async def _follow(
        self, session_id: str, items: AsyncIterator[Entry | LiveText], *, to_the_end: bool = False
    ) -> None:
        """Show a turn, or all turns of the items, and handle signals until the end."""
        tasks, reactions = Tasks(on_failure=None), list[asyncio.Task[object]]()

        def react(number: int) -> None:
            reaction = self.engine.interrupt(session_id) if number == signal.SIGINT else self.engine.drain()
            reactions.append(tasks.start(reaction))

        with self.inbox.reacting(react):
            try:
                await self._show_turn(session_id, items, to_the_end=to_the_end)
            except Unavailable:
                if not reactions:
                    raise
                self.is_quitting = self.is_signalled = True
            finally:
                for task in reactions:
                    await task
                await tasks.close()

    async def _show_turn(self, session_id: str, items: AsyncIterator[Entry | LiveText], *, to_the_end: bool) -> None:
        async with Spinner("thinking") as spinner:
            outcome = await turn_output.show(
                turn_output.stop_spinner_at_output(items, spinner),
                text_stream=sys.stdout,
                note_stream=sys.stderr,
                to_the_end=to_the_end,
            )
        # Messages queued by others are answered now: at the prompt nothing runs.
        await self.engine.settled()
        if (problem := turn_output.failure_message(outcome.ended)) is not None:
            print(f"[{one_line(problem)}]")
        elif self.engine.titles is not None:
            self.engine.titles.give(session_id)
        print()


def run_chat(settings: Settings, opening: OpenRequest, prompt: str | None, *, latest: bool) -> int:
    """Run the chat, with a first message if there is one, and return its exit status. Lines are read between turns, so that a signal reaches whichever is active."""
    inbox = signals.SignalInbox(interactive=sys.stdin.isatty())
    with inbox.installed(), asyncio.Runner() as runner:
        stack = contextlib.AsyncExitStack()
        try:
            app, engine = runner.run(_open_engine(stack, settings))
            chat = LineModeChat(app, engine, opening)
            chat.inbox = inbox
            model = runner.run(_start(chat, opening, latest=latest))
            print(startup_text(model, settings) + "\n")
            with contextlib.suppress(signals.Signalled):
                if prompt is not None:
                    runner.run(chat.handle_input(prompt))
                while not chat.is_quitting and (line := _line(inbox)) is not None:
                    if line.strip():
                        runner.run(chat.handle_input(line))
            if not chat.is_signalled:
                runner.run(chat.close_session())
        finally:
            runner.run(stack.aclose())
    return errors.INTERRUPTED if inbox.is_ending else errors.DONE


async def _open_engine(stack: contextlib.AsyncExitStack, settings: Settings) -> tuple[App, Engine]:
    app = await stack.enter_async_context(open_app(settings))
    # No line is read during a turn, so questions cannot be answered then.
    opened = open_engine(app.database, settings, config.environment(), supervisor=app.supervisor, kind="chat")
    return app, await stack.enter_async_context(opened)


async def _start(chat: LineModeChat, opening: OpenRequest, *, latest: bool) -> str:
    """Open the requested session, if any; returns the model in use."""
    if opening.ref == "":
        await registry.run(chat, "/sessions")
    first = await find_session(chat.engine, opening, latest=latest)
    await chat.open_session(first)
    return model_name(first, chat.model)


def _line(inbox: signals.SignalInbox) -> str | None:
    """Read the next line; None at the end of input. Ctrl-C at the prompt clears it; any other signal raises Signalled."""
    while True:
        try:
            with inbox.reading():
                return input("you ▸ " if sys.stdin.isatty() else "")
        except EOFError:
            return None
        except KeyboardInterrupt:
            print("\n(press Ctrl-D to quit)")
