"""Renders untrusted Markdown as HTML that runs no script and loads nothing."""

import re
from collections.abc import MutableMapping, Sequence
from functools import cache
from typing import Any

from markdown_it import MarkdownIt
from markdown_it.renderer import RendererProtocol
from markdown_it.rules_core import StateCore
from markdown_it.token import Token
from markupsafe import Markup, escape

from holdfast.interop.pages.code import render_code
from holdfast.model.sanitize import visible

MAX_CHARS = 40_000
"""Longer texts are shown without formatting: no reply is that long, but a text made to be slow to parse may be."""
MIN_KEPT = 0.9
"""Share of the letters that rendering must keep. Markdown drops deeply nested quotes and lists, and link definitions. It also
replaces entities, which is harmless."""
GENERATED = re.compile(
    r'</?[a-z]+|class="[^"]*"|(?:href|rel|target|start|tabindex|type)=|noreferrer noopener|_blank|&[a-z]+;|"button" data-copy>Copy'
)
"""HTML that the renderer adds."""
BARE_ADDRESS = re.compile(r"https?://[^\s<>\"'`\[\]{}|\\^()]*[^\s<>\"'`\[\]{}|\\^().,;:!?*_~]")
TASK = re.compile(r"\[([ xX])\]\s+")
TOP_HEADING = 3
"""The page has the first level, a message the second."""
SAFE_LINK = re.compile(r"(https?://|mailto:)[^\s]+", re.IGNORECASE)


@cache
def _parser() -> MarkdownIt:
    """HTML becomes text, links lead only to the web, and images become links, so that nothing is loaded from other servers."""
    parser = MarkdownIt("commonmark", {"html": False, "maxNesting": 50, "breaks": True})
    parser.enable(["table", "strikethrough"])
    parser.core.ruler.push("bare_links", _link_bare_addresses)
    parser.core.ruler.push("tasks", _mark_tasks)
    parser.core.ruler.push("lower_headings", _lower_headings)
    parser.validateLink = lambda url: SAFE_LINK.fullmatch(url) is not None  # type: ignore[method-assign]
    parser.add_render_rule("image", _render_image)
    parser.add_render_rule("link_open", _render_link)
    parser.add_render_rule("td_open", _render_cell)
    parser.add_render_rule("th_open", _render_cell)
    parser.add_render_rule("ordered_list_open", _render_list)
    parser.add_render_rule("fence", _render_code)
    parser.add_render_rule("code_block", _render_code)
    parser.add_render_rule("table_open", _render_table)
    parser.add_render_rule("table_close", _render_table)
    return parser


def _link_bare_addresses(state: StateCore) -> None:
    """Make links of web addresses in the text, as GitHub does."""
    for block in state.tokens:
        if block.type != "inline" or "://" not in block.content:
            continue
        made: list[Token] = []
        depth = 0
        for token in block.children or []:
            depth += {"link_open": 1, "link_close": -1}.get(token.type, 0)
            made += _split_addresses(token) if token.type == "text" and not depth else [token]
        block.children = made


def _split_addresses(token: Token) -> list[Token]:
    """The text with its addresses as links."""
    found: list[Token] = []
    end = 0
    for match in BARE_ADDRESS.finditer(token.content):
        found += [_text_token(token.content[end : match.start()]), Token("link_open", "a", 1, {"href": match[0]})]
        found += [_text_token(match[0]), Token("link_close", "a", -1)]
        end = match.end()
    return [*found, _text_token(token.content[end:])] if found else [token]


def _text_token(text: str) -> Token:
    return Token("text", "", 0, content=text)


def _mark_tasks(state: StateCore) -> None:
    """Show the boxes of a task list."""
    for item, _, block in zip(state.tokens, state.tokens[1:], state.tokens[2:], strict=False):
        first = block.children[0] if block.type == "inline" and block.children else None
        if item.type == "list_item_open" and first is not None and (match := TASK.match(first.content)):
            first.content = ("☐ " if match[1] == " " else "☑ ") + first.content[match.end() :]


def _render_image(
    self: RendererProtocol, tokens: Sequence[Token], index: int, options: Any, env: MutableMapping[str, Any]
) -> str:
    url = str(tokens[index].attrGet("src") or "")
    label = tokens[index].content or url
    if not url:
        return str(escape(label))
    return str(Markup('<a href="{}" rel="noreferrer noopener" target="_blank">▧ {}</a>').format(url, label))


def _render_link(
    self: RendererProtocol, tokens: Sequence[Token], index: int, options: Any, env: MutableMapping[str, Any]
) -> str:
    url = str(tokens[index].attrGet("href") or "")
    return str(Markup('<a href="{}" rel="noreferrer noopener" target="_blank">').format(url)) if url else "<a>"


def _lower_headings(state: StateCore) -> None:
    """Put headings below that of their message, and let none skip a level: a screen reader reads them as an outline."""
    headings = [token for token in state.tokens if token.type in ("heading_open", "heading_close")]
    highest = min((int(token.tag[1]) for token in headings), default=0)
    before = TOP_HEADING - 1
    for token in headings:
        if token.nesting == 1:
            before = min(int(token.tag[1]) - highest + TOP_HEADING, before + 1, 6)
        token.tag = f"h{before}"


def _render_cell(
    self: RendererProtocol, tokens: Sequence[Token], index: int, options: Any, env: MutableMapping[str, Any]
) -> str:
    """Set a column's alignment with a class: the page's content security policy forbids inline styles."""
    alignment = re.search(r"right|center", str(tokens[index].attrGet("style") or ""))
    return f'<{tokens[index].tag} class="{alignment[0]}">' if alignment else f"<{tokens[index].tag}>"


def _render_list(
    self: RendererProtocol, tokens: Sequence[Token], index: int, options: Any, env: MutableMapping[str, Any]
) -> str:
    start = tokens[index].attrGet("start")
    return f'<ol start="{int(start)}">' if start else "<ol>"


def _render_code(
    self: RendererProtocol, tokens: Sequence[Token], index: int, options: Any, env: MutableMapping[str, Any]
) -> str:
    words = tokens[index].info.split()
    return str(render_code(tokens[index].content, words[0][:30] if words else ""))


def _render_table(
    self: RendererProtocol, tokens: Sequence[Token], index: int, options: Any, env: MutableMapping[str, Any]
) -> str:
    """Put a table into an element that scrolls, so that a wide one does not break words."""
    return '<div class="scroll" tabindex="0"><table>\n' if tokens[index].nesting == 1 else "</table></div>\n"


def render(text: str) -> Markup:
    """Render a text as HTML. A text that is too long, or part of which Markdown would hide, is shown without formatting."""
    source = visible(text)
    html = _parser().render(source) if len(source) <= MAX_CHARS else ""
    if _count_letters(GENERATED.sub("", html)) < MIN_KEPT * _count_letters(source):
        return Markup('<p class="plain">{}</p>').format(escape(source))
    return Markup(html)  # noqa: S704 - the parser escapes everything that it does not generate


def _count_letters(text: str) -> int:
    return sum(map(str.isalpha, text))
