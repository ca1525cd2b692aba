"""Markdown that others wrote, as HTML that can neither run nor fetch anything."""

import re
from collections.abc import MutableMapping, Sequence
from functools import cache
from typing import Any

from markdown_it import MarkdownIt
from markdown_it.renderer import RendererProtocol
from markdown_it.token import Token
from markupsafe import Markup, escape

from holdfast.interop.visible import visible

MAX_LETTERS = 40_000
"""Longer texts are shown as they are: no reply is so long, and what is meant to be slow to parse is."""
KEPT = 0.9
"""Of the letters: quotes and lists nested too deep, and definitions of links, vanish in Markdown. Names of signs may."""
OURS = re.compile(r"</?[a-z]+|(?:href|rel|class|target|start)=|noreferrer noopener|_blank|&[a-z]+;")
"""Letters of the HTML that nobody said."""
LINKABLE = re.compile(r"(https?://|mailto:)[^\s]+", re.IGNORECASE)


@cache
def _parser() -> MarkdownIt:
    """HTML is text here, links lead to the web only, and pictures are links: nothing is fetched from elsewhere."""
    parser = MarkdownIt("commonmark", {"html": False, "maxNesting": 50, "breaks": True})
    parser.enable(["table", "strikethrough"])
    parser.validateLink = lambda url: LINKABLE.fullmatch(url) is not None  # type: ignore[method-assign]
    parser.add_render_rule("image", _picture)
    parser.add_render_rule("link_open", _link)
    parser.add_render_rule("heading_open", _heading)
    parser.add_render_rule("heading_close", _heading)
    parser.add_render_rule("td_open", _cell)
    parser.add_render_rule("th_open", _cell)
    parser.add_render_rule("ordered_list_open", _list)
    return parser


def _picture(
    self: RendererProtocol, tokens: Sequence[Token], place: int, options: Any, env: MutableMapping[str, Any]
) -> str:
    url = str(tokens[place].attrGet("src") or "")
    words = tokens[place].content or url
    if not url:
        return str(escape(words))
    return str(Markup('<a href="{}" rel="noreferrer noopener" target="_blank">▧ {}</a>').format(url, words))


def _link(
    self: RendererProtocol, tokens: Sequence[Token], place: int, options: Any, env: MutableMapping[str, Any]
) -> str:
    url = str(tokens[place].attrGet("href") or "")
    return str(Markup('<a href="{}" rel="noreferrer noopener" target="_blank">').format(url)) if url else "<a>"


def _heading(
    self: RendererProtocol, tokens: Sequence[Token], place: int, options: Any, env: MutableMapping[str, Any]
) -> str:
    """Headings of a message stand below those of the page."""
    level = min(int(tokens[place].tag[1]) + 3, 6)
    return f"<h{level}>" if tokens[place].nesting == 1 else f"</h{level}>\n"


def _cell(
    self: RendererProtocol, tokens: Sequence[Token], place: int, options: Any, env: MutableMapping[str, Any]
) -> str:
    """A column's alignment as a class: a style in the page would be refused by its own policy."""
    side = re.search(r"right|center", str(tokens[place].attrGet("style") or ""))
    return f'<{tokens[place].tag} class="{side[0]}">' if side else f"<{tokens[place].tag}>"


def _list(
    self: RendererProtocol, tokens: Sequence[Token], place: int, options: Any, env: MutableMapping[str, Any]
) -> str:
    start = tokens[place].attrGet("start")
    return f'<ol start="{int(start)}">' if start else "<ol>"


def render(text: str) -> Markup:
    """The text as HTML. One that is too long, or of which Markdown would hide something, is shown as it is."""
    shown = visible(text)
    drawn = _parser().render(shown) if len(shown) <= MAX_LETTERS else ""
    if _letters(OURS.sub("", drawn)) < KEPT * _letters(shown):
        return Markup('<p class="plain">{}</p>').format(escape(shown))
    return Markup(drawn)  # noqa: S704 - the parser escapes all that it did not write itself


def _letters(text: str) -> int:
    return sum(map(str.isalpha, text))
