"""Long texts as several messages, each within a platform's limit. Nothing is left out, and code stays code."""

import re
from collections.abc import Callable

FENCE = re.compile(r"^(```+|~~~+)(.*)$", re.MULTILINE)
BREAKS = ("\n\n", "\n", ". ", " ")
"""Where a text is best cut, the best first."""
EARLIEST = 0.5
"""A cut that leaves less than this share of the room filled is too early, if there is a worse one further on."""


def split(text: str, limit: int, measure: Callable[[str], int] = len) -> list[str]:
    """The text in pieces that fit. A fenced block that is cut is closed and opened again; else the pieces add up to the text,
    white space at the cuts aside. The same text is always cut the same way.
    """
    pieces: list[str] = []
    rest, fence = text, ""
    while True:
        opening = f"{fence}\n" if fence else ""
        room = limit - measure(opening)
        if measure(rest) <= room:
            pieces.append(opening + rest)
            return [piece for piece in pieces if piece.strip()] or [text]
        closing = "\n```" if fence or "```" in rest or "~~~" in rest else ""
        at = _cut(rest, room - measure(closing), measure)
        piece, rest = rest[:at], rest[at:]
        fence = _open_fence(opening + piece)
        rest = rest.lstrip("\n") if fence else rest.lstrip()
        body = (opening + piece).rstrip()
        pieces.append(f"{body}\n{fence[:3]}" if fence else body)


def _cut(text: str, room: int, measure: Callable[[str], int]) -> int:
    """Where to cut so that what comes before fits. Always at least one character."""
    longest = _fitting(text, room, measure)
    for mark in BREAKS:
        found = text.rfind(mark, 0, longest)
        if found >= longest * EARLIEST:
            return found + len(mark.rstrip("\n ")) if mark == ". " else max(found, 1)
    return longest


def _fitting(text: str, room: int, measure: Callable[[str], int]) -> int:
    """How many characters fit; a pair that makes one sign together is not cut in two."""
    low, high = 1, min(len(text), max(room, 1))
    while low < high:
        middle = (low + high + 1) // 2
        if measure(text[:middle]) <= room:
            low = middle
        else:
            high = middle - 1
    while low > 1 and low < len(text) and _joins(text[low]):
        low -= 1
    return low


def _joins(letter: str) -> bool:
    """Whether a character belongs to the one before it."""
    import unicodedata

    return letter in "\u200d\ufe0f" or unicodedata.combining(letter) != 0 or "\U0001f3fb" <= letter <= "\U0001f3ff"


def _open_fence(text: str) -> str:
    """The line that opened a fenced block which is still open at the end."""
    opened = ""
    for found in FENCE.finditer(text):
        if not opened:
            opened = found[0].strip()
        elif found[1][:3] == opened[:3] and not found[2].strip():
            opened = ""
    return opened[:40]


def sendable(text: str) -> str:
    """The text with a question mark for each sign that no platform takes: those that stand for bytes which are no UTF-8."""
    return text.encode("utf-8", "replace").decode("utf-8")


def utf16(text: str) -> int:
    """The length of a text as some platforms count it."""
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


def utf8(text: str) -> int:
    """The length of a text in bytes."""
    return len(text.encode("utf-8", "surrogatepass"))
