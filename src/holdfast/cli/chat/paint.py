"""Draws what is said: Markdown and notes become lines with colours, as wide as the terminal.

Whatever a model, a tool or another person wrote is made visible first: it never steers the terminal.
"""

import io
import re
from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING

from holdfast.interop.visible import visible

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

STYLE = re.compile(r"\x1b\[[0-9;]*m")
COLUMNS = re.compile(r"(\s*\S.*?\s{2,})(\S.*)")
WIDEST = 100
"""Columns beyond which lines are hard to read."""
NARROWEST = 20


class Paint:
    """Turns texts into lines. `columns` says how wide the terminal is now."""

    def __init__(self, columns: Callable[[], int]) -> None:
        self._columns = columns

    @property
    def width(self) -> int:
        return max(min(self._columns(), WIDEST), NARROWEST)

    def markdown(self, text: str) -> str:
        """A block of Markdown."""
        from holdfast.cli.chat.calm import Calm

        lines = self._lines(Calm(visible(text), hyperlinks=False))
        while lines and not STYLE.sub("", lines[0]).strip():
            del lines[0]
        while lines and not STYLE.sub("", lines[-1]).strip():
            del lines[-1]
        return "".join(f"{line}\n" for line in lines)

    def plain(self, text: str, style: str = "") -> str:
        """Some lines as they are, wrapped at the edge."""
        from rich.text import Text

        return self._drawn(Text(visible(text), style=style))

    def rows(self, text: str, style: str = "") -> str:
        """As `plain`; a line of two columns, with blanks between them, is wrapped within its second one."""
        return "".join(self._row(line, style) for line in text.split("\n"))

    def _row(self, line: str, style: str) -> str:
        found = COLUMNS.fullmatch(line)
        if found is None or len(found[1]) > self.width // 2:
            return self.plain(line, style)
        return self.indented(visible(found[1]), found[2], mark_style=style, style=style)

    def indented(self, mark: str, text: str, *, mark_style: str = "", style: str = "") -> str:
        """A text with a mark before its first line, and the others in line with it."""
        from rich.cells import cell_len
        from rich.text import Text

        wide = cell_len(mark)
        head = self._drawn(Text(mark.rstrip(), style=mark_style)).rstrip("\n") + mark[len(mark.rstrip()) :]
        body = self._lines(Text(visible(text), style=style), less=wide)
        return "".join(f"{' ' * wide if number else head}{line}".rstrip() + "\n" for number, line in enumerate(body))

    def _lines(self, drawn: "RenderableType", *, less: int = 0) -> list[str]:
        return self._drawn(drawn, less=less).rstrip("\n").split("\n")

    def _drawn(self, what: "RenderableType", *, less: int = 0) -> str:
        """The lines, so many columns narrower, without the blanks that would make a narrower window wrap them."""
        console = self._console
        console.width = max(self.width - less, 1)
        with console.capture() as captured:
            console.print(what)
        return "".join(f"{line.rstrip(' ')}\n" for line in captured.get().rstrip("\n").split("\n"))

    @cached_property
    def _console(self) -> "Console":
        from rich.console import Console

        return Console(
            file=io.StringIO(),
            force_terminal=True,
            color_system="auto",
            width=self.width,
            highlight=False,
            markup=False,
            emoji=False,
            legacy_windows=False,
        )
