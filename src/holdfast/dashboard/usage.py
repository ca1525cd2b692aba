"""The page of usage and cost: charts by day, model, source and user over a range of days. The server draws them."""

import asyncio
from collections.abc import Iterable, Sequence
from datetime import date, timedelta
from typing import Literal, get_args

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from holdfast.dashboard import templating
from holdfast.dashboard.context import DashboardContext, get_context
from holdfast.engine.spending import report
from holdfast.engine.spending.report import GroupBy, UsageGroup, UsageRange
from holdfast.interop.documents.usage import as_csv
from holdfast.model.errors import Invalid
from holdfast.model.price import format_money
from holdfast.store.spending.sums import UsageSum

Measure = Literal["cost", "tokens", "calls"]
MEASURES: tuple[Measure, ...] = get_args(Measure)
MAX_BARS = 15
"""Bars per chart; the rest is one bar."""
MAX_DAYS = 3_660
RANGES = (("7 days", 7), ("30 days", 30), ("90 days", 90), ("a year", 365))
COLUMNS: tuple[GroupBy, ...] = ("day", "model", "source", "user")
EMPTY = {"model": "no model", "source": "unknown", "user": "local user"}


class ChartBar(msgspec.Struct, frozen=True):
    """One bar: its length is a share of the longest, in percent."""

    label: str
    text: str
    detail: str
    percent: float


class UsageChart(msgspec.Struct, frozen=True):
    name: str
    bars: list[ChartBar]


async def show_usage(request: Request) -> Response:
    """The page. A range that is not one is an error with the reason."""
    context = get_context(request)
    days, measure = _range(request, context), _measure(request)
    by_day, *others = [await report.read_groups(context.database, days, (name,)) for name in COLUMNS]
    total = report.add_up(one.sum for one in by_day)
    columns = day_bars(by_day, days, measure)
    return templating.page_response(
        request,
        "usage.html",
        days=days,
        total=total,
        cost="unknown" if total.calls and total.unpriced == total.calls else format_money(total.cost),
        measure=measure,
        measures=MEASURES,
        columns=columns,
        highest=max(columns, key=lambda bar: bar.percent),
        charts=[
            UsageChart(name, group_bars(found, name, measure)) for name, found in zip(COLUMNS[1:], others, strict=True)
        ],
        ranges=[(label, _ago(context, count)) for label, count in RANGES],
    )


async def send_csv(request: Request) -> Response:
    """Everything that the page shows, by day, model, source and user."""
    context = get_context(request)
    days = _range(request, context)
    groups = await report.read_groups(context.database, days, COLUMNS)
    name = f"holdfast-usage-{days.first}-{days.last}.csv"
    headers = {"content-disposition": f'attachment; filename="{name}"'}
    text = await asyncio.to_thread(as_csv, COLUMNS, groups)  # a year of many models takes longer than others may wait
    return Response(text, headers=headers, media_type="text/csv; charset=utf-8")


def _range(request: Request, context: DashboardContext) -> UsageRange:
    given = request.query_params
    days = report.parse_range(given.get("from"), given.get("to"), at=context.now)
    if _count(days) > MAX_DAYS:
        raise Invalid(f"a range may have at most {MAX_DAYS:,} days")
    return days


def _ago(context: DashboardContext, count: int) -> str:
    """The first day of a range of that length which ends today."""
    today = report.parse_range(None, None, at=context.now).last
    return (date.fromisoformat(today) - timedelta(days=count - 1)).isoformat()


def _count(days: UsageRange) -> int:
    return (date.fromisoformat(days.last) - date.fromisoformat(days.first)).days + 1


def _measure(request: Request) -> Measure:
    given = request.query_params.get("measure", "cost")
    if given not in MEASURES:
        raise Invalid(f"unknown measure {given!r}; use {', '.join(MEASURES)}")
    return given


def day_bars(groups: Iterable[UsageGroup], days: UsageRange, measure: Measure) -> list[ChartBar]:
    """A bar for every day of the range, also for those without usage."""
    sums = {one.values[0]: one.sum for one in groups}
    first = date.fromisoformat(days.first)
    names = [(first + timedelta(days=offset)).isoformat() for offset in range(_count(days))]
    return _bars([(name, sums.get(name, UsageSum())) for name in names], measure)


def group_bars(found: Iterable[UsageGroup], name: GroupBy, measure: Measure) -> list[ChartBar]:
    """The largest groups, and the rest as one bar."""
    groups = [(one.values[0] or EMPTY[name], one.sum) for one in found]
    groups.sort(key=lambda one: (-_value(one[1], measure), one[0]))
    shown, rest = groups[:MAX_BARS], groups[MAX_BARS:]
    if rest:
        shown.append((f"{len(rest)} others", report.add_up(one for _, one in rest)))
    return _bars(shown, measure)


def _bars(groups: Sequence[tuple[str, UsageSum]], measure: Measure) -> list[ChartBar]:
    most = max((_value(one, measure) for _, one in groups), default=0)
    return [
        ChartBar(label, _text(one, measure), _detail(one), round(100 * _value(one, measure) / most, 3) if most else 0.0)
        for label, one in groups
    ]


def _value(one: UsageSum, measure: Measure) -> int:
    match measure:
        case "cost":
            return one.cost
        case "tokens":
            return one.tokens_in + one.tokens_out
        case "calls":
            return one.calls


def _text(one: UsageSum, measure: Measure) -> str:
    if measure != "cost":
        return f"{_value(one, measure):,}"
    if one.calls and one.unpriced == one.calls:
        return "unknown"
    return format_money(one.cost) + (f" + {one.unpriced:,} unknown" if one.unpriced else "")


def _detail(one: UsageSum) -> str:
    return f"{one.turns:,} turns, {one.calls:,} calls, {one.tokens_in:,} tokens in, {one.tokens_out:,} out"
