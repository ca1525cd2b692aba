"""Small texts: counts, code blocks, and numbers that people or their programs send."""

import re

MAX_DIGITS = 18
"""Digits of a number that every database can store."""


def counted(number: int, thing: str) -> str:
    """`1 message`, `2,000 messages`. For things whose plural ends in a plain s."""
    return f"{number:,} {thing}" if number == 1 else f"{number:,} {thing}s"


def parse_decimal(text: str) -> int | None:
    """The whole number that the text holds in ASCII digits; None if it holds anything else, or a number too large."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= MAX_DIGITS else None


def fenced(text: str, language: str = "") -> str:
    """A code block of Markdown, with a fence that is longer than any in the text."""
    longest = max((len(run) for run in re.findall(r"`{3,}", text)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}{language}\n{text}\n{fence}"
