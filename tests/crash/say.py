"""How a program under test tells what was acknowledged: one JSON line each, written at once and read back here."""

import json
import os
from collections.abc import Iterable
from pathlib import Path

from holdfast.model.session import Session

STDOUT = 1
Line = dict[str, object]
Place = tuple[str, int, str]
"""Where an acknowledged event stands: its session, its number and its hash."""


def say(**line: object) -> None:
    """One line in one system call: a process that is killed leaves whole lines only."""
    os.write(STDOUT, json.dumps(line).encode("ascii") + b"\n")


def place_of(session: Session) -> Place:
    return session.id, session.seq, session.hash


def heard(text: str) -> list[Line]:
    """The lines of a program; one that was cut off is nobody's promise."""
    whole, _, _ = text.rpartition("\n")
    return [json.loads(line) for line in whole.splitlines()]


def heard_in(file: Path) -> list[Line]:
    return heard(file.read_text("ascii"))


def acknowledged(lines: Iterable[Line]) -> list[Line]:
    return [line for line in lines if "ack" in line]


def places(lines: Iterable[Line]) -> list[Place]:
    """Every event the lines acknowledge."""
    return [(str(s), int(str(n)), str(h)) for line in lines for s, n, h in line.get("places", ())]  # type: ignore[attr-defined]
