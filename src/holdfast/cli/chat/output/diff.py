"""Formats the unified diff of a file change: changed lines with their numbers, without headers. Pure."""

import re
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from holdfast.model.text import counted

HEADER = re.compile(r"^--- .*\n\+\+\+ .*\n(?=@@ )", re.MULTILINE)
HUNK = re.compile(r"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")
MOST = 24
"""Lines of a change that are shown."""
CHANGED = {"+": "green", "-": "red"}
STYLES = {"+": "green", "-": "red", " ": "dim"}


class DiffLine(msgspec.Struct, frozen=True):
    """A line to print. `mark` is `+` or `-` for a changed line, a blank for a context line, and empty outside the hunks."""

    mark: str
    text: str

    @property
    def style(self) -> str:
        return STYLES.get(self.mark, "dim")


def format_diff(text: str, where: str) -> list[DiffLine] | None:
    """The lines to print for a tool result that contains a unified diff; None without one. `where` says how to see all of it."""
    found = HEADER.search(text)
    if found is None:
        return None
    before = [DiffLine(" ", line) for line in text[: found.start()].splitlines()]
    shown = list(_numbered(text[found.end() :].splitlines()))
    if len(shown) > MOST:
        shown = [line for line in shown if line.mark != " "]
    left = sum(line.mark in CHANGED for line in shown[MOST:])
    more = [DiffLine(" ", f"… {counted(left, 'more changed line')} ({where})")] if left else []
    return [*before, *shown[:MOST], *more]


def _numbered(lines: Sequence[str]) -> Iterator[DiffLine]:
    """The lines of the hunks, numbered as in the old file if removed, otherwise as in the new one."""
    old = new = 0
    before = ""
    for line, mark in _marked(lines):
        if (hunk := HUNK.match(line)) is not None and mark == "@":
            if before:
                yield DiffLine(" ", "   ⋮")
            old, new = int(hunk[1]), int(hunk[3])
        elif mark:
            yield DiffLine(mark, f"{old if mark == '-' else new:>4} {mark} {line[1:]}")
            old += mark != "+"
            new += mark != "-"
        else:  # the name of another file, or a note, such as that the rest is omitted
            yield DiffLine("", line)
        before = mark


def _marked(lines: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Each line with its mark: `@` for the header of a hunk, `+`, `-` or a blank within it, and nothing elsewhere.

    The header says how long the hunk is: after it, `--- x` is the name of the next file and not a removed line.
    """
    old = new = 0
    for line in lines:
        mark = line[:1] or " "
        if (hunk := HUNK.match(line)) is not None:
            old, new = int(hunk[2] or 1), int(hunk[4] or 1)
            yield line, "@"
        elif mark in STYLES and (old > 0 or new > 0):
            old -= mark != "+"
            new -= mark != "-"
            yield line, mark
        else:
            if mark != "\\":  # "\ No newline at end of file" may be between two lines of a hunk
                old = new = 0
            yield line, ""


def style_lines(text: str) -> Iterator[tuple[str, str]]:
    """The lines of a text that contains unified diffs, each with its style; empty outside the hunks."""
    for line, mark in _marked(text.split("\n")):
        yield line, "cyan" if mark == "@" else CHANGED.get(mark, "")
