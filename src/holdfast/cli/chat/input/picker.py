"""A full-screen picker: a list that is filtered while the user types, with a preview of the selected option."""

import asyncio
from collections.abc import Sequence

from prompt_toolkit.application import Application
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.input import Input
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.keys import Keys
from prompt_toolkit.layout.containers import HSplit, VSplit, Window
from prompt_toolkit.layout.controls import BufferControl, FormattedTextControl
from prompt_toolkit.layout.layout import Layout
from prompt_toolkit.output import Output

from holdfast.cli.chat.output.diff import style_lines
from holdfast.cli.chat.output.screen import STYLE
from holdfast.cli.chat.output.text_fit import fit
from holdfast.model.errors import HoldfastError
from holdfast.model.sanitize import visible
from holdfast.slash.context import CommandChoice, Preview
from holdfast.store.search.folding import fold
from holdfast.tasks import Tasks

QUESTION_ROWS = 8
SCROLL_LINES = 5
WAIT_SECONDS = 0.05
"""How long the selection must rest before its preview is loaded."""
LOADING = [("…", "")]


class Picker:
    def __init__(
        self, question: str, options: Sequence[CommandChoice], preview: Preview | None, source: Input, output: Output
    ) -> None:
        self._question = question.split("\n")[:QUESTION_ROWS]
        self._options = options
        self._preview = preview
        self._previews: dict[str, list[tuple[str, str]]] = {}
        """The lines of each loaded preview, with their styles."""
        self._groups = ["", *dict.fromkeys(tag for option in options for tag in option.tags)]
        self._group = ""
        """Show only options with this tag; empty for all."""
        self._selected_index = 0
        self._scrolled = 0
        """Lines of the preview above its window."""
        self._typed = Buffer(on_text_changed=self._narrow)
        self._tasks = Tasks()
        self.app: Application[str | None] = Application(
            layout=Layout(self._layout()),
            key_bindings=self._keys(),
            style=STYLE,
            full_screen=True,
            input=source,
            output=output,
        )

    async def choose(self) -> str | None:
        """The value of the chosen option, or None."""
        try:
            return await self.app.run_async(pre_run=self._read, handle_sigint=False, set_exception_handler=False)
        finally:
            await self._tasks.close()

    def _matches(self) -> list[CommandChoice]:
        words = fold(self._typed.text).split()
        shown = [option for option in self._options if not self._group or self._group in option.tags]
        return [option for option in shown if all(word in fold(option.label) for word in words)]

    def _selected(self) -> CommandChoice | None:
        matches = self._matches()
        return matches[min(self._selected_index, len(matches) - 1)] if matches else None

    def _narrow(self, _: Buffer) -> None:
        self._selected_index = 0
        self._read()

    def _layout(self) -> HSplit:
        search = VSplit(
            [
                Window(FormattedTextControl("search ❯ "), dont_extend_width=True, style="class:prompt", height=1),
                Window(BufferControl(self._typed), height=1),
            ]
        )
        asked = self._question
        return HSplit(
            [
                Window(FormattedTextControl("\n".join(asked)), height=len(asked), style="class:question"),
                search,
                Window(FormattedTextControl(self._rows), wrap_lines=False, dont_extend_height=True),
                Window(height=1, char="─", style="class:status"),
                Window(FormattedTextControl(self._text), wrap_lines=True),
                Window(FormattedTextControl(self._hint), height=1, style="class:status"),
            ]
        )

    def _hint(self) -> str:
        group = f"Tab: {self._group or 'all'} · " if len(self._groups) > 1 else ""
        scroll = "Shift-↑↓ scrolls · " if self._preview is not None else ""
        return f"{group}↑↓ select · {scroll}Enter confirms · Esc cancels · type to filter"

    def _rows(self) -> StyleAndTextTuples:
        size = self.app.output.get_size()
        matches = self._matches()
        room = max((size.rows - 3 - len(self._question)) // 2, 3)
        index = min(self._selected_index, max(len(matches) - 1, 0))
        first = max(0, min(index - room // 2, len(matches) - room))
        rows: StyleAndTextTuples = []
        for number, option in enumerate(matches[first : first + room], first):
            style = "reverse" if number == index else ""
            rows.append((style, f"{'▸' if number == index else ' '} {fit(option.label, size.columns - 3)}\n"))
        return rows or [("class:status", "no matches\n")]

    def _text(self) -> StyleAndTextTuples:
        """The part of the preview that may be visible: a long one would be slow to draw."""
        selected = self._selected()
        if selected is None or self._preview is None:
            return []
        lines = self._previews.get(selected.value, LOADING)
        self._scrolled = min(self._scrolled, len(lines) - 1)
        shown = lines[self._scrolled : self._scrolled + self.app.output.get_size().rows]
        return [(f"ansi{style}" if style else "", f"{line}\n") for line, style in shown]

    def _read(self) -> None:
        self._scrolled = 0
        self._tasks.cancel()
        self._tasks.start(self._load(), name="preview")

    async def _load(self) -> None:
        """Load the preview of the selected option once the selection rests."""
        selected = self._selected()
        if selected is None or self._preview is None or selected.value in self._previews:
            return
        await asyncio.sleep(WAIT_SECONDS)
        try:
            text = await self._preview(selected.value)
        except HoldfastError as e:
            text = f"! {e}"
        self._previews[selected.value] = list(style_lines(visible(text)))
        self.app.invalidate()

    def _keys(self) -> KeyBindings:
        keys = KeyBindings()

        def move(by: int) -> None:
            self._selected_index = max(0, min(self._selected_index + by, len(self._matches()) - 1))
            self._read()

        @keys.add(Keys.Up)
        @keys.add(Keys.ControlP)
        def _(event: KeyPressEvent) -> None:
            move(-1)

        @keys.add(Keys.Down)
        @keys.add(Keys.ControlN)
        def _(event: KeyPressEvent) -> None:
            move(1)

        @keys.add(Keys.ShiftUp)
        def _(event: KeyPressEvent) -> None:
            self._scrolled = max(0, self._scrolled - SCROLL_LINES)

        @keys.add(Keys.ShiftDown)
        def _(event: KeyPressEvent) -> None:
            self._scrolled += SCROLL_LINES

        @keys.add(Keys.PageUp)
        def _(event: KeyPressEvent) -> None:
            move(-10)

        @keys.add(Keys.PageDown)
        def _(event: KeyPressEvent) -> None:
            move(10)

        @keys.add(Keys.Tab)
        def _(event: KeyPressEvent) -> None:
            place = self._groups.index(self._group) + 1
            self._group = self._groups[place % len(self._groups)]
            self._selected_index = 0
            self._read()

        @keys.add(Keys.Enter)
        def _(event: KeyPressEvent) -> None:
            selected = self._selected()
            if selected is not None:
                event.app.exit(result=selected.value)

        @keys.add(Keys.Escape, eager=True)
        @keys.add(Keys.ControlC)
        @keys.add(Keys.ControlD)
        def _(event: KeyPressEvent) -> None:
            event.app.exit(result=None)

        return keys
