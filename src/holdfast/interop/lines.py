"""JSON lines that somebody else wrote, read one at a time: the last may be half-written, and any may be damaged."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import msgspec

from holdfast.interop.foreign import Damaged, Fact, Skipped

LONGEST = 256 * 1024 * 1024
"""A line longer than any message can be: nothing larger is read into memory."""


class Line(msgspec.Struct, frozen=True):
    number: int
    value: dict[str, object] | None
    """None if the line is not a JSON object."""
    is_last: bool
    """Whether it ends without a line break, as a line does that is still being written."""


def read(path: Path) -> Iterator[Line]:
    """Every line that holds something. Raises OSError."""
    with path.open("rb") as file:
        yield from of_file(file)


def of_file(file: BinaryIO) -> Iterator[Line]:
    number = 0
    while raw := file.readline(LONGEST):
        number += 1
        is_last = not raw.endswith(b"\n")
        if is_last and len(raw) == LONGEST:
            _pass_over(file)
            yield Line(number, None, is_last=False)
        elif raw.strip():
            yield Line(number, parse(raw), is_last=is_last)


def _pass_over(file: BinaryIO) -> None:
    """Read to the end of a line that is too long."""
    while (more := file.readline(LONGEST)) and not more.endswith(b"\n"):
        pass


def parse(raw: bytes) -> dict[str, object] | None:
    """The object, or None for anything else."""
    try:
        value = json.loads(raw.decode("utf-8-sig"))
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def damage(line: Line) -> Iterator[Fact]:
    """What to tell of a line that is no object."""
    if line.is_last:
        yield Damaged(why=f"line {line.number} is half-written; all before it was taken")
    else:
        yield Skipped(why=f"line {line.number}, which is not a JSON object")
