"""What comes of a trial, and what every trial is given."""

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from holdfast.torture.opening import Opener, load

SHOWN = 20
"""Findings that are kept of one trial: the first tell the most."""


@dataclass
class Outcome:
    """The row of a trial. Whatever is not as promised is counted once, and told in words."""

    name: str
    tried: dict[str, int] = field(default_factory=dict)
    lost: int = 0
    """What was acknowledged and is not there, or was taken from somebody alive."""
    doubled: int = 0
    """What is there, or was done, more than once; and what was written by one who had lost the right to."""
    leaked: int = 0
    """Sessions and workers that nobody sees to, after everything was seen to."""
    findings: list[str] = field(default_factory=list)
    broken: str = ""
    """Why the trial could not be finished."""
    skipped: str = ""
    """Why it was not begun."""
    note: str = ""
    seconds: float = 0.0

    @property
    def ok(self) -> bool:
        return not (self.lost or self.doubled or self.leaked or self.broken)

    def count(self, what: str, number: int = 1) -> None:
        self.tried[what] = self.tried.get(what, 0) + number

    def lose(self, finding: str) -> None:
        self.lost += 1
        self._note(finding)

    def double(self, finding: str) -> None:
        self.doubled += 1
        self._note(finding)

    def leak(self, finding: str) -> None:
        self.leaked += 1
        self._note(finding)

    def _note(self, finding: str) -> None:
        if len(self.findings) < SHOWN:
            self.findings.append(finding)


@dataclass(frozen=True)
class Stage:
    """Where a trial takes place: a store and a folder of its own, and the chance that the seed gives."""

    url: str
    opener: str
    folder: Path
    chance: random.Random
    rounds: int

    @property
    def open(self) -> Opener:
        return load(self.opener)

    def given(self, **more: Any) -> dict[str, Any]:
        """What a program of this trial is told."""
        return {"url": self.url, "opener": self.opener, "folder": str(self.folder), **more}


Trial = Callable[[Stage, Outcome], Any]
"""Tries something and writes down what came of it; an awaitable."""
