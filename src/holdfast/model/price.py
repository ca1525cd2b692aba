"""Prices of models, and amounts of money as integers: billionths of a US dollar (nano-dollars), so that sums are exact."""

import math
from collections.abc import Callable
from typing import Annotated

import msgspec

from holdfast.model.event import Usage

NANO = 1_000_000_000
MILLION = 1_000_000
HIGHEST_COST = 1_000_000.0
"""US dollars. A provider that claims more for one call is not believed."""
Money = Annotated[float, msgspec.Meta(ge=0, le=HIGHEST_COST)]
"""US dollars."""


class Price(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """US dollars per million tokens. Without prices of their own, cached tokens cost as much as other input."""

    input: Money
    output: Money
    cache_read: Money | None = None
    cache_write: Money | None = None

    @property
    def is_free(self) -> bool:
        return not (self.input or self.output or self.cache_read or self.cache_write)


FindPrice = Callable[[str], Price | None]
"""Finds the price of a model."""


def call_cost(price: Price, usage: Usage) -> float | None:
    """The cost of one call in US dollars; None if the provider did not count the tokens."""
    if price.is_free:
        return 0.0
    if not usage.tokens_in and not usage.tokens_out:
        return None
    read, written = max(0, usage.cache_read), max(0, usage.cache_write)
    plain = max(0, usage.tokens_in - read - written)
    total = plain * price.input + max(0, usage.tokens_out) * price.output
    total += read * (price.input if price.cache_read is None else price.cache_read)
    total += written * (price.input if price.cache_write is None else price.cache_write)
    return total / MILLION


def is_plausible(cost: float | None) -> bool:
    """Whether the text that a provider sent as a cost is one."""
    return cost is not None and math.isfinite(cost) and 0 <= cost <= HIGHEST_COST


def to_nano(dollars: float) -> int:
    """Nano-dollars."""
    return round(dollars * NANO)


def to_dollars(nano: int) -> float:
    return nano / NANO


def format_money(nano: int) -> str:
    """For people: cents, and more digits for smaller amounts."""
    dollars = nano / NANO
    return f"${dollars:,.2f}" if nano == 0 or abs(dollars) >= 1 else f"${dollars:,.4f}"
