"""The slash command `/cost`: what this session has used, and its budget."""

from holdfast.engine.spending import report
from holdfast.engine.spending.report import SessionSpending
from holdfast.model.errors import Invalid
from holdfast.model.price import format_money
from holdfast.model.text import counted
from holdfast.slash.context import CommandContext, require_session
from holdfast.store.spending.sums import UsageSum

LIMITS = {
    "session": "budget of this session",
    "user": "budget of the user today",
    "day": "budget of all sessions today",
}


async def cost(context: CommandContext, rest: str) -> None:
    """Show what the session has cost, or raise its budget."""
    session_id = require_session(context)
    services, meter = context.engine.services, context.engine.meter
    word, _, amount = rest.partition(" ")
    if word == "raise":
        if context.user:
            raise Invalid("only the operator can raise a budget, at a terminal or through the API")
        found = await report.raise_session_limit(
            services.database, meter, session_id, _amount(amount), by="local", at=services.clock.now()
        )
        context.confirm("The budget of this session was raised.")
    elif rest:
        raise Invalid(f"/cost takes no argument {word!r}; use /cost, or /cost raise AMOUNT")
    else:
        found = await report.report_session(services.database, meter, session_id, at=services.clock.now())
    context.show("\n".join(spending_lines(found)))


def spending_lines(found: SessionSpending) -> list[str]:
    """The cost by model, and the limits."""
    lines = [f"{model or 'unknown model'}: {_sum_line(one)}" for model, one in found.by_model.items() if one.calls]
    lines = [*lines, f"total: {_sum_line(found.total)}"] if len(lines) != 1 else lines
    lines += [f"its sub-agents: {_sum_line(found.sub_agents)}"] if found.sub_agents.calls else []
    for one in found.limits:
        held = f", {format_money(one.spent.held)} held by calls in progress" if one.spent.held else ""
        lines.append(f"{LIMITS[one.name]}: {format_money(one.spent.spent)} of {format_money(one.limit)}{held}")
    return lines


def _sum_line(one: UsageSum) -> str:
    tokens = f"{one.tokens_in:,} tokens in, {one.tokens_out:,} out"
    return f"{cost_text(one)} ({counted(one.calls, 'call')}, {tokens})"


def cost_text(one: UsageSum) -> str:
    """The cost, and how many calls are not in it."""
    if not one.unpriced:
        return format_money(one.cost)
    if one.unpriced == one.calls:
        return "cost unknown"
    return f"{format_money(one.cost)} and {counted(one.unpriced, 'call')} of unknown cost"


def _amount(text: str) -> float:
    try:
        return float(text.strip().removeprefix("$"))
    except ValueError as e:
        raise Invalid(f"{text.strip()!r} is not an amount; use for example /cost raise 2.50") from e
