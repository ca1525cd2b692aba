"""Asks the operator whether a session may spend more, when its budget is used up in the middle of its work.

The question is committed before it is shown, under a name made of what the session had been allowed until then. So a
worker that continues the turn finds the same question, open or answered, and one answer raises the budget once. Sub-agents
share the budget: the answer to the question of one of them answers those of the others.
"""

from holdfast.engine.spending.meter import Meter
from holdfast.engine.turn import approval
from holdfast.engine.turn.active_session import ActiveSession
from holdfast.model.approval import Proposal
from holdfast.model.delegation import delegation_of
from holdfast.model.errors import BudgetExceeded
from holdfast.model.event import BudgetRaised
from holdfast.model.price import NANO, format_money
from holdfast.store.database import Transaction
from holdfast.store.repos import approvals
from holdfast.store.spending import budget


async def may_continue(active: ActiveSession, meter: Meter, exceeded: BudgetExceeded) -> bool:
    """Ask whether the session may spend its limit once more, and raise the limit if so. Waits for the answer."""
    amount = meter.limits.session
    if exceeded.raised is None or not amount or active.turn.id is None:
        return False
    database, clock, raised = active.services.database, active.services.clock, exceeded.raised
    place = (active.id, active.turn.id, f"{budget.QUESTION}{raised}")
    if await database.read(approvals.get, *place) is None:
        facts = exceeded.facts.removeprefix("the ")
        await _put(active, place, f"The {facts}. May it spend {format_money(amount)} more?")
    with active.asking():
        allowed = await approval.wait(active, place, None)
    if not allowed:
        return False
    answer = await database.read(approvals.get_answer, *place)
    event, at = BudgetRaised(amount=amount / NANO, by="" if answer is None else answer.by), clock.now()

    def work(tx: Transaction) -> None:
        if budget.get_raise(tx, budget.find_root(tx, active.id)) == raised:
            budget.raise_limit(tx, active.id, event, at=at)

    await database.write(work)
    return True


async def _put(active: ActiveSession, place: tuple[str, str, str], message: str) -> None:
    """Commit the question; a child's is shown where the user of its parent is."""
    link = delegation_of(active.session, active.opened)
    proposal = Proposal(
        tool="holdfast",
        kind="elicitation",
        message=message,
        requester=approval.requester_of(active, place[1]),
        parent_id=link.parent_id,
        root_id=link.root_id,
    )
    await approval.put_question(active, place, proposal)
