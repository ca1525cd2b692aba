"""Choosing from many: a list that narrows while one types, and what the marked one holds beside it."""

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

from holdfast.cli.chat.cells import fit
from holdfast.cli.chat.screen import STYLE
from holdfast.model.errors import HoldfastError
from holdfast.slash.seat import Option, Preview

QUESTION_ROWS = 8
WAIT_SECONDS = 0.05
"""How long a mark must rest before what it stands on is read."""


class Picker:
    def __init__(
        self, question: str, options: Sequence[Option], preview: Preview | None, source: Input, output: Output
    ) -> None:
        self._question = question.split("\n")[:QUESTION_ROWS]
        self._options = options
        self._preview = preview
        self._texts: dict[str, str] = {}
        self._place = 0
        self._typed = Buffer(on_text_changed=self._narrow)
        self._reading: asyncio.Task[None] | None = None
        self.app: Application[str | None] = Application(
            layout=Layout(self._layout()),
            key_bindings=self._keys(),
            style=STYLE,
            full_screen=True,
            input=source,
            output=output,
        )

    async def choose(self) -> str | None:
        """The value of the option that was chosen, or None."""
        try:
            return await self.app.run_async(pre_run=self._read, handle_sigint=False, set_exception_handler=False)
        finally:
            if self._reading is not None:
                self._reading.cancel()

    def _fitting(self) -> list[Option]:
        words = self._typed.text.lower().split()
        return [option for option in self._options if all(word in option.label.lower() for word in words)]

    def _marked(self) -> Option | None:
        fitting = self._fitting()
        return fitting[min(self._place, len(fitting) - 1)] if fitting else None

    def _narrow(self, _: Buffer) -> None:
        self._place = 0
        self._read()

    def _layout(self) -> HSplit:
        search = VSplit(
            [
                Window(FormattedTextControl("search ❯ "), dont_extend_width=True, style="class:prompt", height=1),
                Window(BufferControl(self._typed), height=1),
            ]
        )
        asked = self._question
        hint = "↑↓ move · Enter chooses · Esc leaves · typing narrows the list"
        return HSplit(
            [
                Window(FormattedTextControl("\n".join(asked)), height=len(asked), style="class:question"),
                search,
                Window(FormattedTextControl(self._rows), wrap_lines=False),
                Window(height=1, char="─", style="class:status"),
                Window(FormattedTextControl(self._text), wrap_lines=True),
                Window(FormattedTextControl(hint), height=1, style="class:status"),
            ]
        )

    def _rows(self) -> StyleAndTextTuples:
        size = self.app.output.get_size()
        fitting = self._fitting()
        room = max((size.rows - 3 - len(self._question)) // 2, 3)
        place = min(self._place, max(len(fitting) - 1, 0))
        first = max(0, min(place - room // 2, len(fitting) - room))
        rows: StyleAndTextTuples = []
        for number, option in enumerate(fitting[first : first + room], first):
            style = "reverse" if number == place else ""
            rows.append((style, f"{'▸' if number == place else ' '} {fit(option.label, size.columns - 3)}\n"))
        return rows or [("class:status", "nothing fits\n")]

    def _text(self) -> str:
        marked = self._marked()
        return "" if marked is None or self._preview is None else self._texts.get(marked.value, "…")

    def _read(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
        self._reading = asyncio.get_running_loop().create_task(self._load(), name="preview")

    async def _load(self) -> None:
        """Read what the marked option holds, once it is certain that the mark stays there."""
        marked = self._marked()
        if marked is None or self._preview is None or marked.value in self._texts:
            return
        await asyncio.sleep(WAIT_SECONDS)
        try:
            self._texts[marked.value] = await self._preview(marked.value)
        except HoldfastError as e:
            self._texts[marked.value] = f"! {e}"
        self.app.invalidate()

    def _keys(self) -> KeyBindings:
        keys = KeyBindings()

        def move(by: int) -> None:
            self._place = max(0, min(self._place + by, len(self._fitting()) - 1))
            self._read()

        @keys.add(Keys.Up)
        @keys.add(Keys.ControlP)
        def _(event: KeyPressEvent) -> None:
            move(-1)

        @keys.add(Keys.Down)
        @keys.add(Keys.ControlN)
        def _(event: KeyPressEvent) -> None:
            move(1)

        @keys.add(Keys.PageUp)
        def _(event: KeyPressEvent) -> None:
            move(-10)

        @keys.add(Keys.PageDown)
        def _(event: KeyPressEvent) -> None:
            move(10)

        @keys.add(Keys.Enter)
        def _(event: KeyPressEvent) -> None:
            marked = self._marked()
            if marked is not None:
                event.app.exit(result=marked.value)

        @keys.add(Keys.Escape, eager=True)
        @keys.add(Keys.ControlC)
        @keys.add(Keys.ControlD)
        def _(event: KeyPressEvent) -> None:
            event.app.exit(result=None)

        return keys
