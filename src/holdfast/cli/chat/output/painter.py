"""Renders Markdown and notes as coloured lines, as wide as the terminal.

Control characters in text from models, tools and users are made visible first, so that they cannot control the terminal.
"""

import io
import re
from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING

from holdfast.cli.chat.output.theme import CODE_THEMES
from holdfast.model.sanitize import visible

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

STYLE = re.compile(r"\x1b\[[0-9;]*m")
COLUMNS = re.compile(r"(\s*\S.*?\s{2,})(\S.*)")
WIDEST = 100
"""Wider lines are hard to read."""
NARROWEST = 20


class Painter:
    """Renders text as lines. `columns` returns the current width of the terminal; `code_theme` is for code blocks."""

    def __init__(self, columns: Callable[[], int], code_theme: str = CODE_THEMES["dark"]) -> None:
        self._columns = columns
        self._code_theme = code_theme

    @property
    def width(self) -> int:
        return max(min(self._columns(), WIDEST), NARROWEST)

    def markdown(self, text: str) -> str:
        """Render a block of Markdown, or plain text if Markdown would hide a word."""
        from holdfast.cli.chat.output import markdown_parser
        from holdfast.cli.chat.output.markdown_style import PlainMarkdown

        shown = visible(text)
        tokens = markdown_parser.parse(shown)
        if tokens is None:
            return self.plain(shown.strip("\n"))
        lines = self._lines(PlainMarkdown(tokens, self._code_theme))
        while lines and not STYLE.sub("", lines[0]).strip():
            del lines[0]
        while lines and not STYLE.sub("", lines[-1]).strip():
            del lines[-1]
        return "".join(f"{line}\n" for line in lines)

    def plain(self, text: str, style: str = "") -> str:
        """Render plain lines, wrapped at the edge."""
        from rich.text import Text

        return self._render(Text(visible(text), style=style))

    def rows(self, text: str, style: str = "") -> str:
        """Like `plain`, but a line of two columns wraps within the second column."""
        return "".join(self._row(line, style) for line in text.split("\n"))

    def _row(self, line: str, style: str) -> str:
        found = COLUMNS.fullmatch(line)
        if found is None or len(found[1]) > self.width // 2:
            return self.plain(line, style)
        return self.indented(visible(found[1]), found[2], mark_style=style, style=style)

    def indented(self, mark: str, text: str, *, mark_style: str = "", style: str = "") -> str:
        """Render a text with a mark before its first line, and the other lines aligned with it."""
        from rich.cells import cell_len
        from rich.text import Text

        indent = cell_len(mark)
        head = self._render(Text(mark.rstrip(), style=mark_style)).rstrip("\n") + mark[len(mark.rstrip()) :]
        body = self._lines(Text(visible(text), style=style), less=indent)
        return "".join(f"{' ' * indent if number else head}{line}".rstrip() + "\n" for number, line in enumerate(body))

    def _lines(self, drawn: "RenderableType", *, less: int = 0) -> list[str]:
        return self._render(drawn, less=less).rstrip("\n").split("\n")

    def _render(self, what: "RenderableType", *, less: int = 0) -> str:
        """Render `less` columns narrower, without trailing blanks, which would wrap in a narrower window."""
        console = self._console
        console.width = max(self.width - less, 1)
        with console.capture() as captured:
            console.print(what)
        return "".join(f"{line.rstrip(' ')}\n" for line in captured.get().rstrip("\n").split("\n"))

    @cached_property
    def _console(self) -> "Console":
        from rich.console import Console
        from rich.theme import Theme

        return Console(
            theme=Theme({"markdown.code": "cyan"}),  # without a background, which would be a black box on a light one
            file=io.StringIO(),
            force_terminal=True,
            color_system="auto",
            width=self.width,
            highlight=False,
            markup=False,
            emoji=False,
            legacy_windows=False,
        )
