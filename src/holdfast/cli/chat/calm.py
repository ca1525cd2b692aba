"""Markdown as a terminal shows it best: headings to the left, code without a box, nothing that jumps."""

from typing import ClassVar

from rich.console import Console, ConsoleOptions, RenderResult
from rich.markdown import CodeBlock, Heading, Markdown, MarkdownElement
from rich.padding import Padding
from rich.syntax import Syntax
from rich.text import Text

THEME = "ansi_dark"
"""The terminal's own colours."""


class CalmCode(CodeBlock):
    """Code, indented, in the terminal's own colours. It can be copied line by line."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        code = str(self.text).rstrip()
        if console.no_color or console.color_system is None:
            yield Padding(Text(code), (0, 0, 0, 2))
            return
        syntax = Syntax(code, self.lexer_name, theme=THEME, word_wrap=True, background_color="default")
        yield Padding(syntax, (0, 0, 0, 2))


class CalmHeading(Heading):
    """A heading is a bold line."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        self.text.justify = "left"
        self.text.stylize("bold underline" if self.tag == "h1" else "bold")
        yield self.text


class Calm(Markdown):
    elements: ClassVar[dict[str, type[MarkdownElement]]] = {
        **Markdown.elements,
        "fence": CalmCode,
        "code_block": CalmCode,
        "heading_open": CalmHeading,
    }
