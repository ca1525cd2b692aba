"""Counts for people, and numbers that they or their programs send."""

MAX_DIGITS = 18
"""Digits of a number that every database can store."""


def counted(number: int, thing: str) -> str:
    """`1 message`, `2,000 messages`. For things whose plural ends in a plain s."""
    return f"{number:,} {thing}" if number == 1 else f"{number:,} {thing}s"


def parse_decimal(text: str) -> int | None:
    """The whole number that the text holds in ASCII digits; None if it holds anything else, or a number too large."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= MAX_DIGITS else None
