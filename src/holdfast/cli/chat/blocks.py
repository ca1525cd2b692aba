"""Markdown that is still being written, cut into blocks that are finished and the one that is not.

A finished block is printed for good, so nothing that is still to come may change it. Pure.
"""

import re

import msgspec

FENCE = re.compile(r"( *)(`{3,}|~{3,})[^`\n]*$")
ITEM = re.compile(r" {0,1}(?:[-*+]|\d{1,9}[.)])(?: |$)")
HEADING = re.compile(r" {0,3}#{1,6}(?: |$)")
LINES = re.compile(r"[^\n]*\n|[^\n]+")
GOES_ON = "\x00"
"""Stands before the rest of a code block whose beginning was printed already."""
MOST_LINES = 20
"""Lines of a code block after which those that are there are printed, and the rest goes on as a block of its own."""


class Block(msgspec.Struct, frozen=True):
    """A piece of Markdown that stands alone. `apart` says whether a blank line belongs before it."""

    text: str
    apart: bool


def cut(text: str) -> tuple[list[Block], str]:
    """The finished blocks of a text that begins with a block, and what is left of it."""
    blocks: list[Block] = []
    while (found := _first(text)) is not None:
        block, text = found
        blocks.append(block)
    return blocks, text


def _first(text: str) -> tuple[Block, str] | None:
    """The first finished block and what follows it; None if the first one may still change."""
    body = text.lstrip("\n")
    lines = LINES.findall(body)
    whole = [line for line in lines if line.endswith("\n")]
    if not whole:
        return None
    apart = body != text or not ITEM.match(whole[0])
    if body.startswith(GOES_ON):
        apart, whole[0] = False, whole[0].removeprefix(GOES_ON)
    size = _size(whole, lines)
    if size is None:
        return _part_of_fence(body, whole, apart=apart)
    block = "".join([*whole[:1], *lines[1:size]])
    gap = "\n" if block.endswith("\n\n") else ""
    return Block(block.rstrip("\n"), apart), gap + "".join(lines[size:])


def _size(whole: list[str], lines: list[str]) -> int | None:
    """How many lines the first block has, once that is certain."""
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
        if _begins_anew(line, after_gap=not lines[number - 1].strip(), is_item=is_item):
            return number
    return None


def _begins_anew(line: str, *, after_gap: bool, is_item: bool) -> bool:
    """Whether a line is certainly no part of the block above it."""
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


def _part_of_fence(body: str, whole: list[str], *, apart: bool) -> tuple[Block, str] | None:
    """The beginning of a code block that has grown long, closed; the rest begins like it."""
    fence = _opening(whole[0])
    if fence is None or len(whole) <= MOST_LINES:
        return None
    head = "".join(whole[:MOST_LINES])
    rest = "".join(LINES.findall(body)[MOST_LINES:])
    return Block(f"{head}{fence}", apart), GOES_ON + whole[0] + rest


def last(text: str) -> Block | None:
    """The unfinished block as the last one there will be; None if there is nothing in it."""
    body = text.strip("\n")
    if not body.removeprefix(GOES_ON).strip():
        return None
    apart = not body.startswith(GOES_ON) and (text.startswith("\n") or not ITEM.match(body))
    return Block(body.removeprefix(GOES_ON), apart)


def tail(text: str, lines: int) -> str:
    """The end of an unfinished block, short enough to be drawn again and again."""
    found = LINES.findall(text.lstrip("\n").removeprefix(GOES_ON))
    if len(found) <= lines:
        return "".join(found)
    fence = _opening(found[0])
    return (found[0] if fence is not None else "") + "".join(found[-lines:])
