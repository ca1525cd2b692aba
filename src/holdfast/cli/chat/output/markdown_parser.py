"""Parses the Markdown of replies without losing a word.

HTML such as `<details>` or `Vec<String>` is text here, images are links, and link definitions stay in place. If the parser
still drops a word (a table row with too many cells), `parse` returns None and the block is shown as written.
"""

import html
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cache

from markdown_it import MarkdownIt
from markdown_it.rules_inline import StateInline, emphasis
from markdown_it.token import Token

WORD = re.compile(r"[^\W_]+")
INSIDE_WORD = re.compile(r"[A-Za-z0-9](\*+)(?=[A-Za-z0-9])")
DROPPING = ("reference", "image", "autolink")
"""Rules that drop words: link definitions, images, and addresses in angle brackets."""


def parse(text: str) -> list[Token] | None:
    """The tokens of a text; None if a word of it is missing from them."""
    tokens = _parser().parse(text)
    for token in tokens:
        if token.children:
            token.children = list(_with_titles(token.children))
    kept = set(WORD.findall(" ".join(_texts(tokens))))
    return tokens if kept.issuperset(WORD.findall(html.unescape(text))) else None


@cache
def _parser() -> MarkdownIt:
    parser = MarkdownIt("commonmark", {"html": False}).enable(["strikethrough", "table"]).disable(DROPPING)
    parser.inline.ruler.at("emphasis", _emphasis)
    parser.normalizeLink = lambda url: url  # type: ignore[method-assign] # show an address as written
    return parser


def _emphasis(state: StateInline, silent: bool) -> bool:
    """Emphasis by asterisks around words. Underscores as in `__init__`, and asterisks as in 2*3*4, are text."""
    found = INSIDE_WORD.match(state.src, max(state.pos - 1, 0)) if state.pos else None
    if found is not None and found[1][0] == state.src[state.pos]:
        state.pending += "" if silent else found[1]
        state.pos += len(found[1])
        return True
    return state.src[state.pos] != "_" and emphasis.tokenize(state, silent)


def _with_titles(tokens: Sequence[Token]) -> Iterator[Token]:
    """The tokens, with the title of each link as text after it."""
    titles: list[str] = []
    for token in tokens:
        yield token
        if token.type == "link_open":
            titles.append(str(token.attrs.get("title", "")))
        elif token.type == "link_close" and (title := titles.pop()):
            yield Token("text", "", 0, content=f' "{title}"')


def _texts(tokens: Iterable[Token]) -> Iterator[str]:
    """All text of the tokens, including the language of code blocks."""
    for token in tokens:
        yield from (token.info, str(token.attrs.get("href", "")))
        if token.children is not None:
            yield from _texts(token.children)
        else:
            yield token.content
