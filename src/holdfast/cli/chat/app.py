"""The chat in a terminal. Everything shown comes from the log and the drafts, so all terminals of a session show the same."""

import asyncio
import time
from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import Any

from prompt_toolkit.buffer import Buffer
from prompt_toolkit.input import Input
from prompt_toolkit.output import Output

from holdfast import config, logs
from holdfast.cli.chat import shell_command
from holdfast.cli.chat.attachments.compose import ComposedMessage
from holdfast.cli.chat.attachments.composer import MessageComposer
from holdfast.cli.chat.context import TerminalChat, is_quit_word
from holdfast.cli.chat.input.completion import ChatCompleter
from holdfast.cli.chat.input.held_draft import HeldDraft
from holdfast.cli.chat.input.history import FILE, InputHistory
from holdfast.cli.chat.input.key_bindings import KEY_HELP, bindings
from holdfast.cli.chat.input.keyboard import copy_input
from holdfast.cli.chat.input.paste import PasteBuffer
from holdfast.cli.chat.output import banner
from holdfast.cli.chat.output.image_protocols import choose_protocol
from holdfast.cli.chat.output.inline_images import InlineImages
from holdfast.cli.chat.output.painter import Painter
from holdfast.cli.chat.output.queued_lines import queued_lines
from holdfast.cli.chat.output.screen import Screen
from holdfast.cli.chat.output.status_line import status_line
from holdfast.cli.chat.output.text_fit import dim, wrap
from holdfast.cli.chat.output.theme import code_theme
from holdfast.cli.chat.process_output import ProcessOutput
from holdfast.cli.chat.prompts import SHOW_ALL, TerminalPrompt, is_message, next_question
from holdfast.cli.chat.question_line import QuestionLine
from holdfast.cli.chat.status import ChatStatus
from holdfast.cli.chat.user_programs import UserPrograms
from holdfast.cli.chat.watcher import SessionWatcher
from holdfast.engine.admission.open_session import OpenRequest
from holdfast.engine.admission.rewind import Rewind
from holdfast.engine.engine import Engine
from holdfast.model.entry import Entry
from holdfast.model.errors import HoldfastError, Invalid
from holdfast.model.event import GoalSet
from holdfast.model.message import Content, typed_text
from holdfast.model.mode import next_mode
from holdfast.model.session import Session
from holdfast.slash import queued, registry
from holdfast.slash.context import CommandChoice, Preview
from holdfast.tasks import Tasks, running, stop, wait_for_first
from holdfast.wiring.store import App

QUIT_SECONDS = 10.0
"""How long to wait for the turn to end when the user quits."""
SLOW_COMMAND = "compact"
"""The slow command: a message typed meanwhile is sent at once and queued in the store, as during a turn."""


class ChatApp(TerminalChat):
    """The interactive chat: input, output and the current session."""

    def __init__(self, app: App, engine: Engine, opening: OpenRequest, source: Input, output: Output) -> None:
        super().__init__(app, engine, opening)
        self.has_list = True
        self._source, self._output = source, output
        self._pastes = PasteBuffer()
        self._typed: asyncio.Queue[tuple[str, str]] = asyncio.Queue()
        """Entered lines, each with the id of the question it was typed for."""
        self._tasks = Tasks(on_failure=self._end_with)
        self._follower: asyncio.Task[None] | None = None
        self._loop = asyncio.get_running_loop()
        self._failed: asyncio.Future[None] = self._loop.create_future()
        self._is_quitting = False
        self._slow_command: asyncio.Task[None] | None = None
        """The slow command that is running."""
        self._command = ""
        """The command that was typed last."""
        self._status = ChatStatus(self.settings, self.workdir, time.monotonic)
        self._mode_lock = asyncio.Lock()
        self._completer = ChatCompleter(engine.services.database, self.workdir, self.settings.home)
        self.buffer = Buffer(
            completer=self._completer,
            history=InputHistory(self.settings.home / FILE),
            complete_while_typing=True,
            multiline=True,
        )
        self._draft = HeldDraft(self.buffer, time.monotonic)
        self._question_line = QuestionLine(self._draft, self._refresh)
        self._is_vim, keys = self.settings.chat.keys == "vim", bindings(self.buffer, self._pastes, self)
        self.screen = Screen(self, self.buffer, keys, source, output, vim=self._is_vim)
        self._composer = MessageComposer(self.workdir, self.settings.home, self._pastes)
        environment = config.environment()
        self._programs = UserPrograms(self.screen, self.buffer, self._pastes, self._composer, self.show, environment)
        self._painter = Painter(lambda: self.screen.columns, code_theme(self.settings.chat.theme, environment))
        self._watcher = self._new_watcher()
        self._output_of = ProcessOutput(
            engine.processes, self._painter, self._tasks, self.screen.show, self.screen.redraw
        )

    # screen content

    def live(self) -> str:
        stop_key = "Ctrl-C" if self._is_vim else "Esc"
        turn = self._watcher.transcript.live(is_working=self.is_animated(), stop_key=stop_key)
        return turn + self._output_of.live()

    def waiting(self) -> str:
        goal = ["checking the goal …"] if self._watcher.is_checking_goal else []
        hints = [wrap(hint, self.screen.columns - 1) for hint in self._watcher.hints]
        return "\n".join([*goal, *hints, *queued_lines(self._watcher.state)])

    def question(self) -> str:
        shown = self._question_line.shown
        return "" if shown is None else wrap(shown.text, self.screen.columns - 1)

    def status(self) -> str:
        facts = self._status.facts(
            self._watcher,
            model=self.model,
            mode=self.opening_mode,
            busy=self.busy,
            keys=self.screen.keys_state(),
        )
        return status_line(facts, self.screen.columns - 1)

    def is_animated(self) -> bool:
        """Whether to animate: not while the turn waits for an answer, or its process is stopped."""
        watcher = self._watcher
        return (
            watcher.is_working
            and not watcher.hints
            and (watcher.transcript.is_acting or self._question_line.shown is None)
        )

    def is_working(self) -> bool:
        """Whether a turn is running."""
        return self._watcher.is_working

    def show(self, text: str) -> None:
        self._watcher.show(text)

    def confirm(self, text: str) -> None:
        if self.session_id is None:  # there is no log yet that would show it
            self.show(text)

    # main loop

    async def run(self, first: tuple[Session, list[Entry]] | None) -> None:
        """Run the chat until the user quits. Raises the error that ended it otherwise."""
        self.screen.show(
            dim(banner.startup_text(banner.model_name(first, self.model), self.settings), self._painter.width)
        )
        await self.open_session(first)
        try:
            with logs.redirect_warnings(self._show_warning):
                async with running(self.screen.run(), self.screen.animate(), self._listen()) as tasks:
                    ends = [*tasks, self._failed, self.engine.death]
                    await wait_for_first(*ends)
                    for ended in ends:
                        if ended.done():
                            ended.result()
        finally:
            await self._tasks.close()

    def _show_warning(self, line: str) -> None:
        """Show a log record above the input line: printed to standard error, it would garble the screen. Thread-safe."""
        self._loop.call_soon_threadsafe(self.show, f"! {line}")

    def start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Start a task of the chat. An unexpected failure ends the chat."""
        return self._tasks.start(work)

    def _end_with(self, _: "asyncio.Task[Any]", error: BaseException) -> None:
        if not self._failed.done():
            self._failed.set_exception(error)

    # input

    def enter(self, text: str) -> None:
        """Handle a line as if the user had typed it."""
        self._typed.put_nowait((text, self._draft.answered_question))

    def cycle_mode(self) -> None:
        """Change to the next permission mode."""
        self.start(self._cycle_mode())

    async def _cycle_mode(self) -> None:
        async with self._mode_lock:
            await self.change_mode(next_mode(await self.permission_mode()))
        self._refresh()

    async def _listen(self) -> None:
        while True:
            text, question_id = await self._typed.get()
            try:
                await self._handle_input(text, question_id)
            except HoldfastError as e:
                self._report_unsent(text, e)
            finally:
                self._typed.task_done()
            self._refresh()

    async def _handle_input(self, text: str, question_id: str) -> None:
        asked = self._question()
        command = registry.parse(text)
        if is_quit_word(text):
            self.quit()
        elif (local := shell_command.parse_command(text.strip())) is not None:
            mark = "! " if local.is_shared else "!! "
            self.screen.show("\n" + self._painter.indented(mark, local.line, mark_style="cyan", style="dim"))
            await self._programs.run_command(local, self.workdir)
        elif command is not None:
            self.screen.show("\n" + self._painter.indented("❯ ", text.strip(), mark_style="cyan", style="dim"))
            if command[0] == SLOW_COMMAND and self._slow_command is None:
                self._slow_command = self.start(self._run(text))
            elif command == ("help", "keys"):
                self.show(KEY_HELP)
            else:
                await self._run_command(text)
        elif asked is not None and question_id == asked.id and await self._answer(asked, text.strip()):
            return
        elif question_id and (asked is None or question_id != asked.id) and not is_message(text, question_id):
            self.show("! That question is no longer open; your input was ignored.")
        elif asked is not None and (asked.must_answer or (asked.about_call and question_id)):
            self._draft.keep(text)
            self.show("Answer yes or no first; your text returns to the input line afterwards.")
        else:
            self._watcher.is_offered = False
            await self._send(text)

    async def _send(self, typed: str) -> None:
        """Send a message with what it mentions. The session is created only if everything can be attached."""
        message = await self._composer.compose(typed)
        await super().say(message.parts)
        self._note_sent(message)

    async def _run_command(self, typed: str) -> None:
        """Run a command. If it sends a message, what the typed text mentions is attached."""
        self._command = typed
        await registry.run(self, self._pastes.expand(typed))

    async def say(
        self, parts: tuple[Content, ...], *, instead: Rewind | None = None, goal: GoalSet | None = None
    ) -> None:
        """See `CommandContext.say`."""
        message = await self._composer.compose(self._command)
        await super().say((*parts, *message.attached), instead=instead, goal=goal)
        self._note_sent(message)

    def _note_sent(self, message: ComposedMessage) -> None:
        self._composer.sent()
        for note in message.notes:
            self.show(note)

    async def _run(self, text: str) -> None:
        """Run the slow command in the background until it ends or the user stops it."""
        try:
            await registry.run(self, self._pastes.expand(text))
        except asyncio.CancelledError:
            self.show("Compaction cancelled; the context is unchanged.")
            raise
        finally:
            self._slow_command = None
            self.screen.redraw()

    def _report_unsent(self, text: str, error: HoldfastError) -> None:
        """Put a message that could not be saved back into the input line: nothing unsaved may look saved."""
        self.show(f"! not sent: {error}")
        if not self.buffer.text:
            self._prefill(text)

    def take_back(self, parts: tuple[Content, ...]) -> bool:
        """See `CommandContext.take_back`. The output of commands goes with the next message again."""
        self._composer.restore(parts)
        self._prefill(typed_text(parts))
        return True

    def _prefill(self, text: str) -> None:
        """Put a text into the input line. Text that is being typed stays, after it."""
        typed = self.buffer.text
        shown = self._pastes.take(text)
        self.buffer.text = f"{shown}\n{typed}" if typed else shown
        self.buffer.cursor_position = len(self.buffer.text)
        self.screen.redraw()

    # queued messages

    def has_queued(self) -> bool:
        state = self._watcher.state
        return state is not None and bool(queued.messages(state.waiting))

    def edit_queued(self) -> None:
        """Take the latest queued message back into the input line."""
        self.start(self._edit_queued())

    async def _edit_queued(self) -> None:
        await registry.run(self, "/queue edit")

    # interrupt and quit

    def interrupt(self) -> bool:
        """Interrupt the running turn or the slow command, or close the output of a process; False if there is nothing."""
        if self._slow_command is not None:
            self._slow_command.cancel()
            return True
        if self._programs.has_terminal:  # the keys go to that program
            return True
        is_busy = self.is_working() or self._watcher.has_active_goal
        if not is_busy or self.session_id is None:
            return self._output_of.stop()
        self.start(self._interrupt(self.session_id))
        return True

    def go_back(self) -> None:
        """Let the user choose a message to go back before."""
        if self.session_id is not None:
            self.enter("/rewind")

    def follow_output(self, process_id: str) -> bool:
        """See `CommandContext.follow_output`."""
        self._output_of.follow(process_id)
        return True

    async def _interrupt(self, session_id: str) -> None:
        await self.take_back_queued(session_id)
        await self.engine.interrupt(session_id)

    def edit_in_editor(self) -> None:
        self.start(self._programs.edit_message())

    def paste_image(self) -> None:
        self.start(self._programs.paste_image())

    def explain_quit(self) -> None:
        self.show("Press Ctrl-D or type /quit or exit to quit; everything is saved.")

    def quit(self) -> None:
        """Interrupt the turn that this terminal runs and quit when it has ended; the second time quit at once."""
        if self._is_quitting:
            self.exit()
            return
        self._is_quitting = True
        self.start(self._quit())

    async def _quit(self) -> None:
        if self._slow_command is not None:
            self._slow_command.cancel()
        try:
            async with asyncio.timeout(QUIT_SECONDS):
                await self._typed.join()  # what was entered before is saved first
                if self.session_id is not None and self.engine.is_serving(self.session_id):
                    self.show("Quitting; stopping the turn first.")
                    await self.engine.interrupt(self.session_id, leaving=True)
                    await self.engine.settled()
        except TimeoutError:
            pass  # the turn is left as after a crash
        self.exit()

    def exit(self) -> None:
        if self.screen.app.is_running and not self.screen.app.is_done:
            self.screen.app.exit()

    # questions to the user

    def _question(self) -> TerminalPrompt | None:
        watcher = self._watcher
        return next_question(watcher.state, self.engine.services.worker_id, is_offered=watcher.is_offered)

    def _refresh(self) -> None:
        """Redraw, print the details of a new question, and hold or restore the input line."""
        details = self._question_line.update(self._question())
        if details is not None:
            self.screen.show(details)
        self.screen.redraw()

    async def _answer(self, asked: TerminalPrompt, text: str) -> bool:
        """Whether the text was used as an answer to the question."""
        if asked.all_details and text.lower() in SHOW_ALL:
            self.screen.show(asked.all_details)
            return True
        answer = asked.parse(text)
        if answer is None:
            return False
        self._watcher.is_offered = False
        try:
            notice = await asked.submit(self.engine, answer)
        except Invalid as e:  # this question does not offer that answer; it stays open
            notice = f"! {e}"
        if notice:
            self.show(notice)
        return True

    async def choose(
        self, question: str, options: Sequence[CommandChoice], preview: Preview | None = None
    ) -> str | None:
        from holdfast.cli.chat.input.picker import Picker

        async with self.screen.lent():
            return await Picker(question, options, preview, copy_input(self._source), self._output).choose()

    # the session

    def work_in(self, directory: Path) -> None:
        self.workdir = self._completer.workdir = self._composer.workdir = directory
        self._status = ChatStatus(self.settings, directory, time.monotonic)

    async def ensure_session(self) -> str:
        is_new = self.session_id is None
        session_id = await super().ensure_session()
        if is_new:
            self._follow(session_id, after=0)
        return session_id

    async def stop_watching(self) -> None:
        self._output_of.stop()
        if self._follower is not None:
            await stop(self._follower)
        self._follower = None
        self._watcher = self._new_watcher()

    async def show_session(self, session: Session | None, entries: Sequence[Entry]) -> None:
        if session is not None:
            await self._watcher.show_session(session, entries)
            self._refresh()
            self._follow(session.id, after=entries[-1].seq)

    def _follow(self, session_id: str, *, after: int) -> None:
        self._follower = self.start(self._watcher.watch(session_id, after=after))

    def _new_watcher(self) -> SessionWatcher:
        protocol = choose_protocol(self.settings.images.terminal, config.environment())
        images = InlineImages(protocol, self.settings.home, lambda: self._painter.width)
        return SessionWatcher(self.engine, self._painter, images, self.screen.show, self._refresh, self.apply_model)
