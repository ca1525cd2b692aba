"""Usage and cost, of a session or over a range of days. Costs are in US dollars."""

import csv
import io
from collections.abc import Sequence
from typing import Self

from holdfast.engine.spending.report import GroupBy, SessionSpending, UsageGroup, UsageRange, add_up
from holdfast.interop.serialization import Document
from holdfast.model.price import to_dollars
from holdfast.store.spending.budget import LimitName
from holdfast.store.spending.sums import UsageSum

COUNTS = (
    "turns",
    "calls",
    "unpriced_calls",
    "tokens_in",
    "tokens_out",
    "cache_read",
    "cache_write",
    "reasoning",
    "cost",
)


class UsageItem(Document, frozen=True, omit_defaults=True):
    """A sum. `cost` does not contain the `unpriced_calls`, whose cost is unknown; null if that is all of them."""

    turns: int
    calls: int
    unpriced_calls: int
    tokens_in: int
    tokens_out: int
    cache_read: int
    cache_write: int
    reasoning: int
    cost: float | None
    day: str | None = None
    model: str | None = None
    source: str | None = None
    user: str | None = None

    @classmethod
    def from_sum(cls, found: UsageSum, by: Sequence[GroupBy] = (), values: Sequence[str] = ()) -> Self:
        return cls(
            turns=found.turns,
            calls=found.calls,
            unpriced_calls=found.unpriced,
            tokens_in=found.tokens_in,
            tokens_out=found.tokens_out,
            cache_read=found.cache_read,
            cache_write=found.cache_write,
            reasoning=found.reasoning,
            cost=known_cost(found),
            **dict(zip(by, values, strict=True)),
        )


class UsageResponse(Document, frozen=True, rename={"first": "from", "last": "to"}):
    first: str
    last: str
    by: list[GroupBy]
    groups: list[UsageItem]
    total: UsageItem

    @classmethod
    def from_groups(cls, days: UsageRange, by: Sequence[GroupBy], groups: Sequence[UsageGroup]) -> Self:
        items = [UsageItem.from_sum(one.sum, by, one.values) for one in groups]
        total = UsageItem.from_sum(add_up(one.sum for one in groups))
        return cls(days.first, days.last, list(by), items, total)


class LimitItem(Document, frozen=True):
    name: LimitName
    limit: float
    spent: float
    held: float
    """The estimates of calls in progress."""


class SessionUsageResponse(Document, frozen=True):
    session_id: str
    models: list[UsageItem]
    total: UsageItem
    limits: list[LimitItem]
    raised: float
    sub_agents: UsageItem
    """What its sub-agents have used, and theirs. It is not in `total`."""

    @classmethod
    def from_spending(cls, found: SessionSpending) -> Self:
        return cls(
            found.session_id,
            [UsageItem.from_sum(one, ("model",), (model,)) for model, one in found.by_model.items()],
            UsageItem.from_sum(found.total),
            [
                LimitItem(one.name, to_dollars(one.limit), to_dollars(one.spent.spent), to_dollars(one.spent.held))
                for one in found.limits
            ],
            to_dollars(found.raised),
            UsageItem.from_sum(found.sub_agents),
        )


def known_cost(found: UsageSum) -> float | None:
    """The cost in US dollars; None if there were calls and the cost of none of them is known."""
    return None if found.unpriced and found.unpriced == found.calls else to_dollars(found.cost)


def as_csv(by: Sequence[GroupBy], groups: Sequence[UsageGroup]) -> str:
    """The groups as CSV. A cell never begins a formula, whatever a model or user is called."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([*by, *COUNTS])
    for one in groups:
        cost = known_cost(one.sum)
        counts = [one.sum.turns, one.sum.calls, one.sum.unpriced, one.sum.tokens_in, one.sum.tokens_out]
        counts += [one.sum.cache_read, one.sum.cache_write, one.sum.reasoning]
        writer.writerow([*map(_cell, one.values), *counts, "" if cost is None else f"{cost:.9f}"])
    return out.getvalue()


def _cell(text: str) -> str:
    return f"'{text}" if text[:1] in ("=", "+", "-", "@", "\t", "\r") else text
