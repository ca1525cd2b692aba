"""Small texts: counts, code blocks, character sets, and numbers that people or their programs send."""

import codecs
import re
from typing import NoReturn

MAX_DIGITS = 18
"""Digits of a number that every database can store."""
NO_CHARSETS = frozenset({"punycode", "idna", "unicode-escape", "raw-unicode-escape", "undefined"})
"""Codecs of Python that are not character sets of texts. The time that punycode takes grows with the square of the length."""


def counted(number: int, thing: str) -> str:
    """`1 message`, `2,000 messages`. For things whose plural ends in a plain s."""
    return f"{number:,} {thing}" if number == 1 else f"{number:,} {thing}s"


def truncate(text: str, length: int) -> str:
    """The text; if it is longer than that many characters, its beginning with an ellipsis."""
    return text if len(text) <= length else f"{text[: max(0, length - 1)].rstrip()}…"


def parse_decimal(text: str) -> int | None:
    """The whole number that the text holds in ASCII digits; None if it holds anything else, or a number too large."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= MAX_DIGITS else None


def refuse_constant(constant: str) -> NoReturn:
    """For `json.loads(parse_constant=…)`, which would accept NaN and infinity."""
    raise ValueError(f"{constant} is not JSON")


def fenced(text: str, language: str = "") -> str:
    """A code block of Markdown, with a fence that is longer than any in the text."""
    longest = max((len(run) for run in re.findall(r"`{3,}", text)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}{language}\n{text}\n{fence}"


def decode_text(data: bytes, charset: str) -> str:
    """The text; bytes that do not fit are replaced. An unknown character set counts as UTF-8."""
    try:
        known = codecs.lookup(charset).name not in NO_CHARSETS
        return data.decode(charset if known else "utf-8", "replace")
    except (LookupError, ValueError):
        return data.decode("utf-8", "replace")
