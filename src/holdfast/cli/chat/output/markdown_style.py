"""Markdown for a terminal: left-aligned headings, code without a box, and no cell cut off."""

from collections.abc import Sequence
from typing import ClassVar

from markdown_it.token import Token
from rich import box
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.markdown import (
    CodeBlock,
    Heading,
    ListElement,
    ListItem,
    Markdown,
    MarkdownElement,
    TableElement,
    TableRowElement,
)
from rich.padding import Padding
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text


class PlainCodeBlock(CodeBlock):
    """Indented code in the terminal's own colours, which can be copied line by line."""

    def __init__(self, lexer_name: str, theme: str, caption: str = "") -> None:
        super().__init__(lexer_name, theme)
        self._caption = caption

    @classmethod
    def create(cls, markdown: Markdown, token: Token) -> "PlainCodeBlock":
        language, _, caption = (token.info or "").partition(" ")
        return cls(language or "text", markdown.code_theme, caption.strip())

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        code = str(self.text).rstrip()
        if self._caption:
            yield Padding(Text(self._caption, style="dim"), (0, 0, 0, 2))
        if console.no_color or console.color_system is None:
            yield Padding(Text(code), (0, 0, 0, 2))
            return
        syntax = Syntax(code, self.lexer_name, theme=self.theme, word_wrap=True, background_color="default")
        yield Padding(syntax, (0, 0, 0, 2))


class PlainHeading(Heading):
    """A heading is a bold line."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        self.text.justify = "left"
        self.text.stylize("bold underline" if self.tag == "h1" else "bold")
        yield self.text


class PlainListItem(ListItem):
    """A list item that keeps its written number."""

    def __init__(self, number: int | None) -> None:
        super().__init__()
        self.number = number

    @classmethod
    def create(cls, markdown: Markdown, token: Token) -> "PlainListItem":
        return cls(int(token.info) if token.info.isdecimal() else None)


class PlainList(ListElement):
    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        numbers = [item.number for item in self.items if isinstance(item, PlainListItem) and item.number is not None]
        for item in self.items:
            if isinstance(item, PlainListItem) and item.number is not None:
                yield from item.render_number(console, options, item.number, max(numbers))
            else:
                yield from item.render_bullet(console, options)


class PlainTable(TableElement):
    """A table whose cells are never cut. One that is too wide is shown as a list of rows."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        head = _cells(self.header.row if self.header is not None else None)
        rows = [_cells(row) for row in (self.body.rows if self.body is not None else [])]
        table = Table(
            box=box.SIMPLE, pad_edge=False, style="markdown.table.border", show_edge=True, collapse_padding=True
        )
        for cell in head:
            heading = cell.copy()
            heading.stylize("markdown.table.header")
            table.add_column(heading, overflow="fold")
        for row in rows:
            table.add_row(*row)
        if _least_width([head, *rows]) <= options.max_width:
            yield table
        else:
            yield from _as_list(head, rows)


def _cells(row: TableRowElement | None) -> list[Text]:
    return [] if row is None else [cell.content for cell in row.cells]


def _least_width(rows: Sequence[Sequence[Text]]) -> int:
    """The width of a table in which no word is broken."""
    widths = [max(map(cell_len, cell.plain.split()), default=0) for row in rows for cell in row]
    count = max(map(len, rows), default=0)
    return sum(max(widths[n::count], default=0) + 2 for n in range(count))


def _as_list(head: Sequence[Text], rows: Sequence[Sequence[Text]]) -> RenderResult:
    if not rows:
        yield from head
    for row in rows:
        for name, cell in zip(head, row, strict=False):
            yield Text.assemble(name, ": " if name.plain else "", cell)
        yield Text("")


class PlainMarkdown(Markdown):
    elements: ClassVar[dict[str, type[MarkdownElement]]] = {
        **Markdown.elements,
        "fence": PlainCodeBlock,
        "code_block": PlainCodeBlock,
        "heading_open": PlainHeading,
        "list_item_open": PlainListItem,
        "bullet_list_open": PlainList,
        "ordered_list_open": PlainList,
        "table_open": PlainTable,
    }

    def __init__(self, tokens: list[Token], code_theme: str) -> None:
        super().__init__("", code_theme=code_theme, hyperlinks=False)
        self.parsed = tokens
