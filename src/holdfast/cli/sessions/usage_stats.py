"""`holdfast stats`: what models were used and what they cost."""

from typing import TYPE_CHECKING

import click

from holdfast.cli import context, render

if TYPE_CHECKING:
    from holdfast.engine.spending.report import GroupBy, UsageGroup, UsageRange
    from holdfast.wiring.store import App


@click.command()
@click.option("--from", "first", metavar="DAY", help="First day, such as 2026-11-18; by default 30 days in all.")
@click.option("--to", "last", metavar="DAY", help="Last day. [today]")
@click.option(
    "--by", default="day", metavar="NAMES", help="Group by day, model, source, user, or several with commas. [day]"
)
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV.")
@click.option("--rebuild", is_flag=True, help="First count everything again from the logs.")
@context.json_option
def stats(*, first: str | None, last: str | None, by: str, as_csv: bool, rebuild: bool, as_json: bool) -> None:
    """Show the usage of models: calls, tokens and cost. Days are in UTC."""
    from holdfast.engine.spending import report
    from holdfast.interop.documents import usage

    names = report.parse_groups(by)
    days, groups = context.with_app(lambda app: _read(app, first, last, names, rebuild=rebuild))
    if as_json:
        render.print_json(usage.UsageResponse.from_groups(days, names, groups))
    elif as_csv:
        render.print_text(usage.as_csv(names, groups), end="")
    else:
        _print(names, groups)


async def _read(
    app: "App", first: str | None, last: str | None, names: "tuple[GroupBy, ...]", *, rebuild: bool
) -> "tuple[UsageRange, list[UsageGroup]]":
    from holdfast.engine.spending import report
    from holdfast.store.spending import usage

    if rebuild:
        await app.database.write(usage.restart)
    days = report.parse_range(first, last, at=app.clock.now())
    return days, await report.read_groups(app.database, days, names)


def _print(names: "tuple[GroupBy, ...]", groups: "list[UsageGroup]") -> None:
    from holdfast.engine.spending.report import UsageGroup, add_up
    from holdfast.slash.cost import cost_text

    total = UsageGroup(("total", *[""] * (len(names) - 1)), add_up(one.sum for one in groups))
    rows = [
        [
            *(value or "-" for value in one.values),
            f"{one.sum.turns:,}",
            f"{one.sum.calls:,}",
            f"{one.sum.tokens_in:,}",
            f"{one.sum.tokens_out:,}",
            cost_text(one.sum),
        ]
        for one in [*groups, total]
    ]
    render.print_table([*names, "turns", "calls", "tokens in", "tokens out", "cost"], rows, stretch=0)
