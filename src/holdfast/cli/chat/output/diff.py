"""Formats the unified diff of a file change: changed lines with their numbers, without headers. Pure."""

import re
from collections.abc import Iterator, Sequence

import msgspec

from holdfast.model.text import counted

HEADER = re.compile(r"^--- .*\n\+\+\+ .*\n(?=@@ )", re.MULTILINE)
HUNK = re.compile(r"@@ -(\d+)(?:,\d+)? \+(\d+)(?:,\d+)? @@")
MOST = 24
"""Lines of a change that are shown."""
CHANGED = {"+": "green", "-": "red"}
STYLES = {"+": "green", "-": "red", " ": "dim"}


class DiffLine(msgspec.Struct, frozen=True):
    """A line to print. `mark` is `+` or `-` for a changed line and a blank for a context line."""

    mark: str
    text: str

    @property
    def style(self) -> str:
        return STYLES[self.mark]


def format_diff(text: str, where: str) -> list[DiffLine] | None:
    """The lines to print for a tool result that contains a unified diff; None without one. `where` says how to see all of it."""
    found = HEADER.search(text)
    if found is None:
        return None
    before = [DiffLine(" ", line) for line in text[: found.start()].splitlines()]
    shown = list(_numbered(text[found.end() :].splitlines()))
    if len(shown) > MOST:
        shown = [line for line in shown if line.mark != " "]
    left = len(shown) - MOST
    more = [DiffLine(" ", f"… {counted(left, 'more changed line')} ({where})")] if left > 0 else []
    return [*before, *shown[:MOST], *more]


def _numbered(lines: Sequence[str]) -> Iterator[DiffLine]:
    """The lines of the hunks, numbered as in the old file if removed, otherwise as in the new one."""
    old = new = 0
    for line in lines:
        if (hunk := HUNK.match(line)) is not None:
            if old:
                yield DiffLine(" ", "   ⋮")
            old, new = int(hunk[1]), int(hunk[2])
            continue
        mark = line[:1] if line[:1] in STYLES else ""
        if not mark:  # a note, such as that the rest is omitted
            yield DiffLine(" ", line)
            continue
        yield DiffLine(mark, f"{old if mark == '-' else new:>4} {mark} {line[1:]}")
        old += mark != "+"
        new += mark != "-"


def style_lines(text: str) -> Iterator[tuple[str, str]]:
    """The lines of a text that contains unified diffs, each with its style; empty outside the hunks."""
    in_hunk = False
    for line in text.split("\n"):
        if HUNK.match(line) is not None:
            in_hunk = True
            yield line, "cyan"
            continue
        in_hunk = in_hunk and line[:1] in ("+", "-", " ", "\\")
        yield line, CHANGED.get(line[:1], "") if in_hunk else ""
