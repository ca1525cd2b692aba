"""The excerpt of a text that a hit shows, with the positions of the matches."""

import unicodedata
from collections.abc import Iterator, Sequence

from holdfast.store.search.folding import CHUNK, fold
from holdfast.store.search.trigrams import SearchTerm, chunks

Span = tuple[int, int]

WIDTH = 200
"""Characters of the text that a snippet shows: about two lines of a terminal."""
LEAD = 60
"""How many of them may precede the first match."""
MORE = "…"
# Characters that would garble or reorder a list, or cannot be sent. Some scripts need the joiners.
_UNSEEN = {"Cc", "Cf", "Cs", "Zl", "Zp"}
_JOINERS = "\u200c\u200d"


def snippet(text: str, folded: str, wanted: Sequence[SearchTerm]) -> tuple[str, tuple[Span, ...]]:
    """One line around the first match of the first term, and the positions of all terms in it.

    `folded` is the folded text; it contains all terms.
    """
    match = min(at for form in wanted[0].forms if (at := folded.find(form)) >= 0)
    first, offset = _letter_at(text, match)
    start = _word_start(text, max(0, first - LEAD), first)
    window = text[start : start + WIDTH]
    offset -= len(fold(text[start:first]))
    line, positions = _one_line(window)
    before = MORE if start > 0 else ""
    after = MORE if start + WIDTH < len(text) else ""
    marks = (
        (positions[a] + len(before), positions[b - 1] + 1 + len(before))
        for a, b in _spans(window, folded, offset, wanted)
    )
    return before + line + after, _merged(marks)


def _letter_at(text: str, offset: int) -> Span:
    """The character of the text that produced the folded one at the offset, and the offset of its folding."""
    if text.isascii():
        return offset, offset
    done = 0
    for number, chunk in enumerate(chunks(text)):
        size = len(fold(chunk))
        if done + size <= offset:
            done += size
            continue
        for index, letter in enumerate(chunk, number * CHUNK):
            size = len(fold(letter))
            if done + size > offset:
                return index, done
            done += size
    raise AssertionError("the offset is within the folded text")


def _word_start(text: str, start: int, limit: int) -> int:
    """The start of a word at or soon after `start`, if there is one."""
    if start == 0 or text[start - 1].isspace():
        return start
    for index in range(start, min(limit, start + LEAD // 2)):
        if text[index].isspace():
            return index + 1
    return start


def _spans(window: str, folded: str, offset: int, wanted: Sequence[SearchTerm]) -> Iterator[Span]:
    """Where the window shows a term or a part of it. The folded window begins at the offset."""
    owners = [index for index, letter in enumerate(window) for _ in fold(letter)]
    end = offset + len(owners)
    for form in (form for term in wanted for form in term.forms):
        at = folded.find(form, max(0, offset - len(form) + 1), end + len(form) - 1)
        while at >= 0:
            yield owners[max(at, offset) - offset], _end(window, owners[min(at + len(form), end) - 1 - offset] + 1)
            at = folded.find(form, at + 1, end + len(form) - 1)


def _end(window: str, end: int) -> int:
    """The end of a match with the accents that follow it."""
    while end < len(window) and not fold(window[end]):
        end += 1
    return end


def _one_line(window: str) -> tuple[str, list[int]]:
    """The window with each run of blank and invisible characters as one blank, and the new position of each character."""
    line: list[str] = []
    positions: list[int] = []
    for letter in window:
        blank = letter.isspace() or (unicodedata.category(letter) in _UNSEEN and letter not in _JOINERS)
        if not (blank and line and line[-1] == " "):
            line.append(" " if blank else letter)
        positions.append(len(line) - 1)
    return "".join(line), positions


def _merged(spans: Iterator[Span]) -> tuple[Span, ...]:
    """The spans in order, with adjacent ones merged."""
    merged: list[Span] = []
    for start, end in sorted(spans):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return tuple(merged)
