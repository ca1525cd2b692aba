"""The screen: the input line at the bottom, live output above it, and finished output above that.

Finished output is printed once and belongs to the terminal's scrollback. Only the lines at the bottom are redrawn.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from itertools import groupby
from operator import itemgetter
from typing import NamedTuple, Protocol

from prompt_toolkit.application import Application
from prompt_toolkit.application.run_in_terminal import in_terminal
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.cursor_shapes import ModalCursorShapeConfig
from prompt_toolkit.enums import EditingMode
from prompt_toolkit.filters import Condition
from prompt_toolkit.formatted_text import ANSI, AnyFormattedText, StyleAndTextTuples, to_formatted_text
from prompt_toolkit.input import Input
from prompt_toolkit.key_binding import KeyBindingsBase
from prompt_toolkit.key_binding.vi_state import InputMode
from prompt_toolkit.layout.containers import ConditionalContainer, HSplit, VerticalAlign, Window
from prompt_toolkit.layout.controls import BufferControl, FormattedTextControl
from prompt_toolkit.layout.dimension import Dimension
from prompt_toolkit.layout.layout import Layout
from prompt_toolkit.layout.menus import CompletionsMenu
from prompt_toolkit.output import Output
from prompt_toolkit.styles import Style
from prompt_toolkit.widgets import SearchToolbar

STYLE = Style.from_dict(
    {
        "prompt": "bold ansicyan",
        "question": "bold ansiyellow",
        "waiting": "ansibrightblack",
        "status": "ansibrightblack",
        "completion-menu": "noreverse bg:default",
        "completion-menu.completion": "bg:default",
        "completion-menu.completion.current": "reverse",
        "completion-menu.meta.completion": "bg:default ansibrightblack",
        "completion-menu.meta.completion.current": "bg:default ansibrightblack",
        "scrollbar.background": "bg:default",
        "scrollbar.button": "bg:ansibrightblack",
    }
)
INPUT_ROWS = 10
MENU_ROWS = 8
BELOW = 6
"""Rows reserved below the unfinished block."""
FRAME_SECONDS = 0.125
ESCAPE_SECONDS = 0.2
"""How long Esc waits for another key that would make it Alt plus that key."""
BEGIN, END = "\x1b[?2026h", "\x1b[?2026l"
"""Synchronized output: supporting terminals show everything between them at once; others ignore them."""


class ScreenParts(Protocol):
    """The parts of the screen besides the input, read at every redraw."""

    def live(self) -> str:
        """Coloured lines: the unfinished block and the running tools."""

    def waiting(self) -> str:
        """Queued messages; empty for none."""

    def question(self) -> str:
        """The open question; empty for none."""

    def status(self) -> str:
        """One line."""

    def is_animated(self) -> bool:
        """Whether the content changes with time."""


class Frame(NamedTuple):
    """The parts as they are drawn."""

    live: str = ""
    waiting: str = ""
    question: str = ""
    status: str = ""


def parse_colours(text: str) -> StyleAndTextTuples:
    """Coloured lines as fragments. One for each run of a style: prompt_toolkit makes one for each letter, which draws slowly."""
    letters = to_formatted_text(ANSI(text))
    runs = groupby(letters, key=itemgetter(0))
    return [(style, "".join(letter[1] for letter in run)) for style, run in runs]


class Screen:
    """One application for the whole chat. `show` prints above it; another application can borrow the terminal."""

    def __init__(
        self,
        parts: ScreenParts,
        buffer: Buffer,
        keys: KeyBindingsBase,
        source: Input,
        output: Output,
        *,
        vim: bool = False,
    ) -> None:
        self._parts = parts
        self._is_lent = False
        self._held: list[str] = []
        self._in_frame = False
        self._frame = Frame()
        self._live: StyleAndTextTuples = []
        self._active = asyncio.Event()
        """Set when something may be animated."""
        self.is_gone = False
        """Whether the terminal has been closed."""
        self.app: Application[None] = Application(
            layout=Layout(self._layout(buffer)),
            key_bindings=keys,
            style=STYLE,
            output=output,
            input=source,
            erase_when_done=True,
            before_render=self._begin_frame,
            after_render=self._end_frame,
            editing_mode=EditingMode.VI if vim else EditingMode.EMACS,
            cursor=ModalCursorShapeConfig() if vim else None,
        )
        self.app.ttimeoutlen = 0.05
        self.app.timeoutlen = ESCAPE_SECONDS

    def _layout(self, buffer: Buffer) -> HSplit:

        def rows(text: Callable[[], AnyFormattedText], style: str = "", *, wrap: bool = True) -> Window:
            return Window(FormattedTextControl(text), style=style, wrap_lines=wrap, dont_extend_height=True)

        def unless_empty(text: Callable[[], str], window: Window) -> ConditionalContainer:
            return ConditionalContainer(window, Condition(lambda: bool(text())))

        search = SearchToolbar()
        typed = Window(
            BufferControl(buffer, search_buffer_control=search.control, preview_search=True),
            get_line_prefix=lambda line, wrap: [("class:prompt", "❯ " if line == wrap == 0 else "  ")],
            wrap_lines=True,
            dont_extend_height=True,
            height=Dimension(min=1, max=INPUT_ROWS),
        )
        return HSplit(
            [
                unless_empty(lambda: self._frame.live, rows(lambda: self._live, wrap=False)),
                unless_empty(lambda: self._frame.waiting, rows(lambda: self._frame.waiting, "class:waiting")),
                rows(lambda: " "),
                unless_empty(lambda: self._frame.question, rows(lambda: self._frame.question, "class:question")),
                typed,
                search,
                CompletionsMenu(max_height=MENU_ROWS, scroll_offset=1),
                rows(lambda: self._frame.status, "class:status", wrap=False),
            ],
            align=VerticalAlign.TOP,
        )

    def _begin_frame(self, _: object) -> None:
        """Read the parts once: the layout asks for them several times."""
        parts = self._parts
        frame = Frame(self._last_lines(parts.live()), parts.waiting(), parts.question(), parts.status())
        if frame.live != self._frame.live:
            self._live = parse_colours(frame.live)
        self._frame = frame

    def _last_lines(self, text: str) -> str:
        """The last lines of the live output that fit."""
        lines = text.rstrip("\n").split("\n")
        room = max(self.app.output.get_size().rows - BELOW, 3)
        return "\n".join(lines[-room:])

    @property
    def columns(self) -> int:
        return self.app.output.get_size().columns

    def keys_state(self) -> str:
        """The state of vim keys, if it is not the insert mode."""
        is_normal = self.app.editing_mode == EditingMode.VI and self.app.vi_state.input_mode == InputMode.NAVIGATION
        return "vim: normal" if is_normal else ""

    def show(self, text: str) -> None:
        """Print lines above the redrawn part. While the terminal is lent they wait."""
        if not text or self.is_gone:
            return
        if self._is_lent or not self.app.is_running:
            self._held.append(text)
            return
        output = self.app.output
        output.write_raw(BEGIN)
        self.app.renderer.erase()
        output.write_raw(text.replace("\n", "\r\n"))
        output.flush()
        self._in_frame = True
        self.app.invalidate()

    def _end_frame(self, _: object) -> None:
        if self._in_frame:
            self._in_frame = False
            self.app.output.write_raw(END)
            self.app.output.flush()

    def redraw(self) -> None:
        if not self.is_gone:
            self._active.set()
            self.app.invalidate()

    @asynccontextmanager
    async def lent(self) -> AsyncIterator[None]:
        """Lend the terminal to another application; output waits until it is back."""
        self._is_lent = True
        try:
            async with in_terminal():
                yield
        finally:
            self._is_lent = False
            self.release()

    def release(self) -> None:
        """Print the lines that had to wait."""
        held, self._held = self._held, []
        self.show("".join(held))

    async def run(self) -> None:
        """Draw and read keys until `app.exit()`. Signals are handled elsewhere."""
        await self.app.run_async(handle_sigint=False, set_exception_handler=False, pre_run=self._begin)

    def _begin(self) -> None:
        asyncio.get_running_loop().call_soon(self.release)

    async def animate(self) -> None:
        """Redraw while something is animated. While nothing is, wait for the next redraw: an idle chat costs nothing."""
        while True:
            await self._active.wait()
            await asyncio.sleep(FRAME_SECONDS)
            if self._parts.is_animated():
                self.redraw()
            else:
                self._active.clear()
