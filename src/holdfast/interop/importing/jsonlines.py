"""Reads JSON lines of other programs one at a time: the last may be incomplete, and any may be damaged."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import msgspec

from holdfast.interop.importing.facts import DamagedSource, Fact, SkippedLines

MAX_LINE_BYTES = 256 * 1024 * 1024
"""The maximum length of a line: longer ones are never read into memory."""


class JsonLine(msgspec.Struct, frozen=True):
    number: int
    value: dict[str, object] | None
    """None if the line is not a JSON object."""
    is_last: bool
    """Whether it has no line break at the end, as a line that is still being written."""


def read_lines(path: Path) -> Iterator[JsonLine]:
    """Every line that is not blank. Raises OSError."""
    with path.open("rb") as file:
        yield from parse_lines(file)


def parse_lines(file: BinaryIO) -> Iterator[JsonLine]:
    number = 0
    while raw := file.readline(MAX_LINE_BYTES):
        number += 1
        is_last = not raw.endswith(b"\n")
        if is_last and len(raw) == MAX_LINE_BYTES:
            _skip_line(file)
            yield JsonLine(number, None, is_last=False)
        elif raw.strip():
            yield JsonLine(number, parse_object(raw), is_last=is_last)


def _skip_line(file: BinaryIO) -> None:
    """Skip the rest of a line that is too long."""
    while (more := file.readline(MAX_LINE_BYTES)) and not more.endswith(b"\n"):
        pass


def parse_object(raw: bytes) -> dict[str, object] | None:
    """The object, or None for anything else."""
    try:
        value = json.loads(raw.decode("utf-8-sig"))
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def describe_damage(line: JsonLine) -> Iterator[Fact]:
    """The fact that reports a line that is not a JSON object."""
    if line.is_last:
        yield DamagedSource(why=f"line {line.number} is incomplete; everything before it was imported")
    else:
        yield SkippedLines(why=f"line {line.number}, which is not a JSON object")
