"""The result of a trial, and the context in which each trial runs."""

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from holdfast.torture.scratch_store import Opener, load_opener

MAX_FINDINGS = 20
"""Findings kept per trial; the first ones are the most useful."""


@dataclass
class TrialResult:
    """One row of the report. Each broken promise is counted once and described in one sentence."""

    name: str
    tried: dict[str, int] = field(default_factory=dict)
    lost: int = 0
    """Acknowledged data that is missing or changed, or that was taken from a live process."""
    doubled: int = 0
    """Data that is present or work that was done more than once, and writes by a process without a valid lease."""
    leaked: int = 0
    """Sessions and workers that no worker handles after all sweeps are done."""
    findings: list[str] = field(default_factory=list)
    broken: str = ""
    """Why the trial did not finish."""
    skipped: str = ""
    """Why the trial did not run."""
    note: str = ""
    seconds: float = 0.0

    @property
    def ok(self) -> bool:
        return not (self.lost or self.doubled or self.leaked or self.broken)

    def count(self, what: str, number: int = 1) -> None:
        self.tried[what] = self.tried.get(what, 0) + number

    def add_lost(self, finding: str) -> None:
        self.lost += 1
        self._add(finding)

    def add_doubled(self, finding: str) -> None:
        self.doubled += 1
        self._add(finding)

    def add_leaked(self, finding: str) -> None:
        self.leaked += 1
        self._add(finding)

    def _add(self, finding: str) -> None:
        if len(self.findings) < MAX_FINDINGS:
            self.findings.append(finding)


@dataclass(frozen=True)
class TrialContext:
    """The trial's own store and folder, its random generator (from the seed), and its number of rounds."""

    url: str
    opener: str
    folder: Path
    random: random.Random
    rounds: int

    @property
    def open(self) -> Opener:
        return load_opener(self.opener)

    def parameters(self, **more: Any) -> dict[str, Any]:
        """The parameters of a program of this trial."""
        return {"url": self.url, "opener": self.opener, "folder": str(self.folder), **more}


Trial = Callable[[TrialContext, TrialResult], Any]
"""Runs one trial and records its findings; returns an awaitable."""
