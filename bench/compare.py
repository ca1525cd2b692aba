"""Compares two reports: which figures got worse by more than a tenth.

Only CPU times, memory, disk space and ratios within one run are compared. Times and rates depend on what else the machine does.
"""

from collections.abc import Iterator

import msgspec
from rich.table import Table

from bench.figures import Figure
from bench.report import Report

TOLERANCE = 0.10


class Change(msgspec.Struct, frozen=True):
    """One figure in both reports. `worse` is the share by which it got worse; negative if it got better."""

    section: str
    what: str
    before: float
    after: float
    worse: float

    @property
    def is_regression(self) -> bool:
        return self.worse > TOLERANCE


class DifferentRuns(Exception):
    """Two reports cannot be compared."""


def compare(baseline: Report, now: Report) -> list[Change]:
    """Every figure that both reports have and that may be compared. Raises DifferentRuns if their sizes differ."""
    if baseline.size != now.size:
        raise DifferentRuns(f"The baseline has size {baseline.size}, this run {now.size}")
    before, after = dict(_comparable(baseline)), dict(_comparable(now))
    return [_change(key[0], before[key], figure) for key, figure in after.items() if key in before]


def _comparable(report: Report) -> Iterator[tuple[tuple[str, str, str], Figure]]:
    for section, figures in report.sections.items():
        for figure in figures:
            kind = figure.compared_as
            # Without a goal nobody knows whether a higher ratio is better.
            if figure.judged and kind != "other" and (kind != "ratio" or figure.goal):
                yield (section, figure.what, figure.beside), figure


def _change(section: str, before: Figure, after: Figure) -> Change:
    assert before.judged and after.judged  # _comparable yields no other
    higher_is_better = after.goal is not None and after.goal.side == "≥"
    times = before.judged / after.judged if higher_is_better else after.judged / before.judged
    what = f"{after.what}, beside {after.beside}" if after.beside else after.what
    return Change(section, what, before.judged, after.judged, times - 1)


def table(changes: list[Change]) -> Table:
    """The figures that changed by more than the tolerance, the worst first."""
    result = Table(title=f"Changes of more than {TOLERANCE:.0%} against the baseline", title_justify="left")
    for column in ("section", "what", "baseline", "now", "change"):
        result.add_column(column, justify="left" if column in ("section", "what") else "right")
    for change in sorted(changes, key=lambda one: -one.worse):
        if abs(change.worse) > TOLERANCE:
            colour, word = ("red", "worse") if change.is_regression else ("green", "better")
            text = f"[{colour}]{abs(change.worse):.0%} {word}[/]"
            result.add_row(change.section, change.what, f"{change.before:,.2f}", f"{change.after:,.2f}", text)
    return result
