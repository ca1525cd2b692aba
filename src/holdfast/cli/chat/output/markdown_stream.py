"""Splits streaming Markdown into finished blocks and one unfinished block.

A finished block is printed once, so later text must not change it. Pure.
"""

import re

import msgspec

FENCE = re.compile(r"( *)(`{3,}|~{3,})[^`\n]*$")
ITEM = re.compile(r" {0,1}(?:[-*+]|\d{1,9}[.)])(?: |$)")
HEADING = re.compile(r" {0,3}#{1,6}(?: |$)")
LINES = re.compile(r"[^\n]*\n|[^\n]+")
CONTINUED = "\x00"
"""Marks the rest of a code block whose beginning is already printed."""
MOST_LINES = 20
"""A longer code block is printed in parts of this many lines."""


class MarkdownBlock(msgspec.Struct, frozen=True):
    """A self-contained piece of Markdown. `spaced`: whether a blank line precedes it."""

    text: str
    spaced: bool


def split_finished(text: str) -> tuple[list[MarkdownBlock], str]:
    """The finished blocks of a text, and the rest."""
    blocks: list[MarkdownBlock] = []
    while (found := _first(text)) is not None:
        block, text = found
        blocks.append(block)
    return blocks, text


def _first(text: str) -> tuple[MarkdownBlock, str] | None:
    """The first finished block and the rest; None if the first block may still change."""
    body = text.lstrip("\n")
    lines = LINES.findall(body)
    whole = [line for line in lines if line.endswith("\n")]
    if not whole:
        return None
    spaced = body != text or not ITEM.match(whole[0])
    if body.startswith(CONTINUED):
        spaced, whole[0] = False, whole[0].removeprefix(CONTINUED)
    size = _size(whole, lines)
    if size is None:
        return _part_of_fence(body, whole, spaced=spaced)
    block = "".join([*whole[:1], *lines[1:size]])
    gap = "\n" if block.endswith("\n\n") else ""
    return MarkdownBlock(block.rstrip("\n"), spaced), gap + "".join(lines[size:])


def _size(whole: list[str], lines: list[str]) -> int | None:
    """The number of lines of the first block, once it is certain."""
    fence = _opening(whole[0])
    if fence is not None:
        return next((n for n, line in enumerate(whole[1 : MOST_LINES + 1], 2) if _closes(line, fence)), None)
    if HEADING.match(whole[0]):
        return 1
    is_item = ITEM.match(whole[0]) is not None
    inner: str | None = None
    for number, line in enumerate(lines[1:], 1):
        if inner is not None:
            inner = None if _closes(line, inner) else inner
            continue
        if line.endswith("\n") and (opened := _opening(line)) is not None:
            if not (is_item and line.startswith("  ")):
                return number
            inner = opened
            continue
        if _starts_block(line, after_gap=not lines[number - 1].strip(), is_item=is_item):
            return number
    return None


def _starts_block(line: str, *, after_gap: bool, is_item: bool) -> bool:
    """Whether a line certainly starts a new block."""
    if not line.strip():
        return False
    if line.endswith("\n") and HEADING.match(line):
        return True
    if is_item and line.endswith("\n") and ITEM.match(line):
        return True
    if not after_gap:
        return False
    return not (is_item and line.startswith((" ", "\t")))


def _opening(line: str) -> str | None:
    found = FENCE.match(line.rstrip("\n"))
    return None if found is None else found[2]


def _closes(line: str, fence: str) -> bool:
    mark = line.strip()
    return line.endswith("\n") and len(mark) >= len(fence) and set(mark) == {fence[0]}


def _part_of_fence(body: str, whole: list[str], *, spaced: bool) -> tuple[MarkdownBlock, str] | None:
    """The first part of a long code block, closed, and the rest with the same opening."""
    fence = _opening(whole[0])
    if fence is None or len(whole) <= MOST_LINES:
        return None
    head = "".join(whole[:MOST_LINES])
    rest = "".join(LINES.findall(body)[MOST_LINES:])
    return MarkdownBlock(f"{head}{fence}", spaced), CONTINUED + whole[0] + rest


def unfinished_block(text: str) -> MarkdownBlock | None:
    """The unfinished block at the end of the text; None if it is empty."""
    body = text.strip("\n")
    if not body.removeprefix(CONTINUED).strip():
        return None
    spaced = not body.startswith(CONTINUED) and (text.startswith("\n") or not ITEM.match(body))
    return MarkdownBlock(body.removeprefix(CONTINUED), spaced)


def tail(text: str, lines: int) -> str:
    """The last lines of an unfinished block, short enough to redraw."""
    found = LINES.findall(text.lstrip("\n").removeprefix(CONTINUED))
    if len(found) <= lines:
        return "".join(found)
    fence = _opening(found[0])
    return (found[0] if fence is not None else "") + "".join(found[-lines:])
