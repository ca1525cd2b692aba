"""The JSON lines in which a program under test reports what was acknowledged (`holdfast.torture.child.emit` writes them)."""

import json
from collections.abc import Iterable

from holdfast.model.session import Session
from holdfast.torture.invariants import Head

Line = dict[str, object]


def head_of(session: Session) -> Head:
    return session.id, session.seq, session.hash


def parse_lines(text: str) -> list[Line]:
    """Parse the complete lines; a truncated last line acknowledges nothing."""
    complete, _, _ = text.rpartition("\n")
    return [json.loads(line) for line in complete.splitlines()]


def acknowledged(lines: Iterable[Line]) -> list[Line]:
    return [line for line in lines if "ack" in line]


def heads(lines: Iterable[Line]) -> list[Head]:
    """Every event that the lines acknowledge."""
    return [(str(s), int(str(n)), str(h)) for line in lines for s, n, h in line.get("heads", ())]  # type: ignore[attr-defined]
