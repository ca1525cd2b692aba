"""A measured figure with its goal, and how rounds become one figure."""

import statistics
from collections.abc import Awaitable, Callable, Mapping
from typing import Literal

import msgspec

Contestant = Callable[[], Awaitable[float]]
Round = dict[str, float]
Kind = Literal["cpu", "memory", "disk", "ratio", "other"]
"""What the judged number is. All but `other` depend little on what else the machine does, so they are compared with a baseline."""


class Goal(msgspec.Struct, frozen=True):
    """What a number should be: at least, or at most, some other number."""

    side: Literal["≥", "≤"]
    bound: float
    unit: str = " ×"

    def met(self, value: float) -> bool:
        return value >= self.bound if self.side == "≥" else value <= self.bound

    def __str__(self) -> str:
        return f"{self.side} {self.bound:,g}{self.unit}"


class Figure(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A row of the table. `judged` is the number that the goal and the baseline speak of."""

    what: str
    value: str
    judged: float | None = None
    goal: Goal | None = None
    beside: str = ""
    """What the value is compared with; `judged` is then the ratio of both."""
    kind: Kind = "other"
    others: dict[str, str] = {}
    """The same figure of other systems, by their names."""

    @property
    def met(self) -> bool | None:
        if self.goal is None or self.judged is None:
            return None
        return self.goal.met(self.judged)

    @property
    def compared_as(self) -> Kind:
        """The kind; a figure beside another one is a ratio."""
        return "ratio" if self.beside and self.judged is not None else self.kind


async def alternate(contestants: Mapping[str, Contestant], rounds: int) -> list[Round]:
    """What each contestant reached in each round.

    The order is reversed from one round to the next, so that nobody always runs after the same
    neighbour. A first round warms files and caches and is not counted.
    """
    results: list[Round] = []
    names = list(contestants)
    for _ in range(rounds + 1):
        results.append({name: await contestants[name]() for name in names})
        names.reverse()
    return results[1:]


def median(results: list[Round], name: str) -> float:
    return statistics.median(result[name] for result in results)


def ratio(results: list[Round], name: str, other: str) -> float:
    """The median of the ratios within each round: what slows a whole round down does not count."""
    return statistics.median(result[name] / result[other] for result in results)


def millis(seconds: float) -> str:
    """Seconds as milliseconds, with the digits that matter."""
    value = seconds * 1000
    return f"{value:,.2f} ms" if value < 10 else f"{value:,.1f} ms" if value < 100 else f"{value:,.0f} ms"
