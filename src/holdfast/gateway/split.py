"""Splits a long text into messages within a platform's limit. Nothing is dropped, and code blocks stay code blocks."""

import re
from collections.abc import Callable

FENCE = re.compile(r"^(```+|~~~+)(.*)$", re.MULTILINE)
BREAKS = ("\n\n", "\n", ". ", " ")
"""Where to cut a text, in order of preference."""
MIN_FILL = 0.5
"""A cut is too early if it fills less than this share of the space and a less preferred cut comes later."""


def split(text: str, limit: int, measure: Callable[[str], int] = len, *, code_blocks: bool = True) -> list[str]:
    """Split the text into pieces that fit. The same text is always split the same way.

    With `code_blocks`, a fenced block that is cut is closed and opened again. Otherwise the pieces add up to the text, apart
    from white space at the cuts.
    """
    pieces: list[str] = []
    rest, fence = text, ""
    while True:
        opening = f"{fence}\n" if fence else ""
        room = limit - measure(opening)
        if measure(rest) <= room:
            pieces.append(opening + rest)
            return [piece for piece in pieces if piece.strip()] or [text]
        closing = "\n```" if code_blocks and (fence or "```" in rest or "~~~" in rest) else ""
        at = _find_cut(rest, room - measure(closing), measure)
        piece, rest = rest[:at], rest[at:]
        fence = _open_fence(opening + piece) if code_blocks else ""
        rest = rest.lstrip("\n") if fence else rest.lstrip()
        body = (opening + piece).rstrip()
        pieces.append(f"{body}\n{fence[:3]}" if fence else body)


def _find_cut(text: str, room: int, measure: Callable[[str], int]) -> int:
    """Where to cut so that the first part fits. Always at least one character."""
    longest = _count_fitting(text, room, measure)
    for mark in BREAKS:
        found = text.rfind(mark, 0, longest)
        if found >= longest * MIN_FILL:
            return found + len(mark.rstrip("\n ")) if mark == ". " else max(found, 1)
    return longest


def _count_fitting(text: str, room: int, measure: Callable[[str], int]) -> int:
    """How many characters fit, without cutting a combined character."""
    low, high = 1, min(len(text), max(room, 1))
    while low < high:
        middle = (low + high + 1) // 2
        if measure(text[:middle]) <= room:
            low = middle
        else:
            high = middle - 1
    while low > 1 and low < len(text) and _joins_previous(text[low]):
        low -= 1
    return low


def _joins_previous(character: str) -> bool:
    """Whether a character combines with the one before it."""
    import unicodedata

    return (
        character in "\u200d\ufe0f"
        or unicodedata.combining(character) != 0
        or "\U0001f3fb" <= character <= "\U0001f3ff"
    )


def _open_fence(text: str) -> str:
    """The line that opened a fenced block that is still open at the end."""
    opened = ""
    for found in FENCE.finditer(text):
        if not opened:
            opened = found[0].strip()
        elif found[1][:3] == opened[:3] and not found[2].strip():
            opened = ""
    return opened[:40]


def replace_unsendable(text: str) -> str:
    """Replace each surrogate, which no platform accepts, with a question mark. They stand for bytes that are not UTF-8."""
    return text.encode("utf-8", "replace").decode("utf-8")


def utf16_length(text: str) -> int:
    """The length of a text in UTF-16 code units."""
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


def utf8_length(text: str) -> int:
    """The length of a text in UTF-8 bytes."""
    return len(text.encode("utf-8", "surrogatepass"))
