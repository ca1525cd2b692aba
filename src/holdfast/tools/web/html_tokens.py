"""Splits HTML into tags and texts, in time that grows with its length only, whatever it contains.

It reads what browsers accept: unclosed tags, attributes without quotes, stray `<`. It keeps no tree.
"""

import html
import re
from collections.abc import Iterator, Mapping
from typing import Literal

import msgspec

RAW = ("script", "style", "textarea", "title", "xmp", "iframe", "noembed", "noframes")
"""Elements whose content is text up to their end tag."""
RAW_END = {name: re.compile(f"</{name}", re.IGNORECASE) for name in RAW}
NAME = re.compile(r"[a-zA-Z][^\s/>]*")
ATTRIBUTE = re.compile(r"""([^\s/>=]+)\s*(?:=\s*(?:"([^"]*)"|'([^']*)'|([^\s>"']*)))?""")
QUOTED = re.compile(r"""=\s?["']""")
MAX_TAG = 20_000
"""Characters of a tag whose attributes are read; data URLs can be long."""


class HtmlTag(msgspec.Struct, frozen=True):
    """A start tag or an end tag. Names are in lower case."""

    kind: Literal["start", "end"]
    name: str
    attributes: Mapping[str, str] = {}


def tokenize(source: str) -> Iterator[HtmlTag | str]:
    """The tags and the texts between them, with entities replaced. Comments and declarations are left out."""
    position, end = 0, len(source)
    while position < end:
        start = source.find("<", position)
        if start < 0:
            start = end
        if start > position:
            yield html.unescape(source[position:start])
        if start == end:
            return
        if source.startswith("<!--", start):
            position = _after(source, "-->", start + 4)
            continue
        if source.startswith(("<!", "<?"), start):
            position = _after(source, ">", start)
            continue
        closing = source.startswith("</", start)
        name = NAME.match(source, start + 1 + closing)
        if name is None:
            yield "<"
            position = start + 1
            continue
        position = _tag_end(source, name.end())
        tag = name[0].lower()
        yield HtmlTag("end", tag) if closing else HtmlTag("start", tag, _attributes(source, name.end(), position))
        if not closing and tag in RAW:
            found = RAW_END[tag].search(source, position)
            close = end if found is None else found.start()
            yield source[position:close] if tag in ("script", "style") else html.unescape(source[position:close])
            position = close


def _after(source: str, mark: str, start: int) -> int:
    found = source.find(mark, start)
    return len(source) if found < 0 else found + len(mark)


def _tag_end(source: str, start: int) -> int:
    """The position after the tag. A quoted value may contain `>`; without an end, the tag takes the rest."""
    position, close = start, -1
    while True:
        if close < position:
            close = source.find(">", position)
        if close < 0:
            return len(source)
        quote = _first_quoted_value(source, position, close)
        if quote is None:
            return close + 1
        position = source.find(source[quote], quote + 1) + 1
        if position == 0:
            return close + 1


def _first_quoted_value(source: str, start: int, end: int) -> int | None:
    """The position of the first quotation mark that begins a value."""
    found = QUOTED.search(source, start, end)
    return None if found is None else found.end() - 1


def _attributes(source: str, start: int, end: int) -> dict[str, str]:
    found: dict[str, str] = {}
    for match in ATTRIBUTE.finditer(source, start, min(end - 1, start + MAX_TAG)):
        name, *values = match.groups()
        found.setdefault(name.lower(), html.unescape(next((value for value in values if value is not None), "")))
    return found
