"""What was spent: by session with its limits, and over a range of days."""

from collections.abc import Iterable, Sequence
from typing import cast, get_args

import msgspec

from holdfast.engine.spending.meter import Meter
from holdfast.model.errors import Invalid
from holdfast.model.event import BudgetRaised
from holdfast.model.price import HIGHEST_COST
from holdfast.model.times import DAY, parse_day
from holdfast.store.database import Database, Transaction
from holdfast.store.repos import sessions
from holdfast.store.spending import budget, usage
from holdfast.store.spending.budget import LimitName, PlannedCall, Spent
from holdfast.store.spending.sums import UsageKey, UsageSum, day_of
from holdfast.store.spending.usage import UsageRow

GroupBy = usage.Column
DEFAULT_DAYS = 30


class LimitReport(msgspec.Struct, frozen=True):
    """A limit and what is spent of it, in nano-dollars."""

    name: LimitName
    limit: int
    spent: Spent


class SessionSpending(msgspec.Struct, frozen=True):
    """What a session has used, by model, and the limits that apply to it."""

    session_id: str
    by_model: dict[str, UsageSum]
    sub_agents: UsageSum
    """What its sub-agents have used, and theirs. It counts for the limit of the session."""
    limits: tuple[LimitReport, ...]
    raised: int

    @property
    def total(self) -> UsageSum:
        return add_up(self.by_model.values())


class UsageRange(msgspec.Struct, frozen=True):
    """The days from `first` to `last`, both included, as `2026-11-18` in UTC."""

    first: str
    last: str


class UsageGroup(msgspec.Struct, frozen=True):
    """One sum; `values` are what it is grouped by, in that order."""

    values: tuple[str, ...]
    sum: UsageSum


async def report_session(database: Database, meter: Meter, session_id: str, *, at: int) -> SessionSpending:
    """What the session has used so far, and its limits."""
    await usage.catch_up(database)

    def work(tx: Transaction) -> SessionSpending:
        sessions.get(tx, session_id)
        user, root = usage.find_sender(tx, session_id), budget.find_root(tx, session_id)
        raised = budget.get_raise(tx, root)
        call = PlannedCall("", session_id, root, user, "", day_of(at), "", at, 0)
        limits = [
            LimitReport(name, limit, budget.get_spent(tx, name, call)) for name, limit in meter.limits.of(call, raised)
        ]
        by_model, below = usage.list_of_session(tx, session_id), usage.sum_of_sub_agents(tx, session_id)
        return SessionSpending(session_id, by_model, below, tuple(limits), raised)

    return await database.read(work)


async def raise_session_limit(
    database: Database, meter: Meter, session_id: str, amount: float, *, by: str, at: int
) -> SessionSpending:
    """Allow the session and its sub-agents to spend more, in US dollars. Raises Invalid if it has no limit or the amount is not one."""
    if meter.limits.session is None:
        raise Invalid("sessions have no budget that could be raised; [budget] session sets one")
    if not 0 < amount <= HIGHEST_COST:
        raise Invalid(f"the amount must be above 0 and at most {HIGHEST_COST:,.0f} US dollars")
    await database.write(budget.raise_limit, session_id, BudgetRaised(amount=amount, by=by), at=at)
    return await report_session(database, meter, session_id, at=at)


async def read_days(database: Database, days: UsageRange) -> list[UsageRow]:
    """The sums of a range of days, with everything that was committed before."""
    await usage.catch_up(database)
    return await database.read(usage.list_days, first=days.first, last=days.last)


async def read_groups(database: Database, days: UsageRange, by: Sequence[GroupBy]) -> list[UsageGroup]:
    """The sums of a range of days by these columns, with everything that was committed before."""
    if len(by) > 1:
        return group(await read_days(database, days), by)
    await usage.catch_up(database)
    return group(await database.read(usage.list_by, by[0], first=days.first, last=days.last), by)


def group(rows: Iterable[UsageRow], by: Sequence[GroupBy]) -> list[UsageGroup]:
    """Add the sums up by these columns, in order of their values."""
    found: dict[tuple[str, ...], UsageSum] = {}
    for row in rows:
        values = tuple(_value(row.key, name) for name in by)
        found[values] = found.get(values, UsageSum()) + row.sum
    return [UsageGroup(values, found[values]) for values in sorted(found)]


def _value(key: UsageKey, name: GroupBy) -> str:
    return str(getattr(key, name))


def add_up(sums: Iterable[UsageSum]) -> UsageSum:
    total = UsageSum()
    for one in sums:
        total += one
    return total


def parse_range(first: str | None, last: str | None, *, at: int) -> UsageRange:
    """The range that a person gave; by default the last 30 days. Raises Invalid."""
    end = day_of(parse_day(last) if last else at)
    start = day_of(parse_day(first) if first else parse_day(end) - (DEFAULT_DAYS - 1) * DAY)
    if start > end:
        raise Invalid(f"the range ends on {end}, before it begins on {start}")
    return UsageRange(start, end)


def parse_groups(text: str) -> tuple[GroupBy, ...]:
    """The columns that a person gave, separated by commas. Raises Invalid."""
    names = tuple(part.strip() for part in text.split(","))
    if len(set(names)) < len(names) or not set(names) <= set(get_args(GroupBy)):
        raise Invalid(f"cannot group by {text!r}; use day, model, source, user, or several of them with commas")
    return cast("tuple[GroupBy, ...]", names)
