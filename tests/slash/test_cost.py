"""`/cost` and the cost in `/status`."""

import msgspec

from holdfast.engine.spending.meter import SpendingLimits
from holdfast.model.price import NANO
from holdfast.slash.registry import run
from tests.slash.conftest import TestContext


async def test_cost_says_what_is_unknown(context: TestContext) -> None:
    await context.say_text("Hello")
    await run(context, "/cost")

    assert context.last.startswith("echo: cost unknown (1 call, ")
    await run(context, "/status")
    assert "cost unknown" in context.last


async def test_promise_31_the_operator_can_raise_the_budget_and_a_platform_user_cannot(context: TestContext) -> None:
    context.engine.meter.limits = SpendingLimits(session=NANO, allows_unpriced=True)
    await context.say_text("Hello")

    await run(context, "/cost raise 2.50")
    assert context.last.splitlines()[-1] == "budget of this session: $0.00 of $3.50"
    for line in ("/cost raise", "/cost raise much", "/cost raise -1", "/cost raise nan", "/cost lower 3"):
        await run(context, line)
        assert context.last.startswith("! ")
    context.user = "telegram:42"
    await run(context, "/cost raise 2")
    assert context.last == "! only the operator can raise a budget, at a terminal or through the API"

    context.engine.meter.limits = msgspec.structs.replace(context.engine.meter.limits, session=None)
    context.user = ""
    await run(context, "/cost raise 2")
    assert "[budget] session sets one" in context.last
