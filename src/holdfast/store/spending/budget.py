"""Reservations in the budgets: what calls of models may cost is reserved before they begin, and replaced by what they cost.

All reservations are made one after another (`usage.get_position` names the key of the sums), so that calls that start at
the same moment see each other. What is spent is the sum of what `usage` has summed up and of the reservations.
"""

from collections.abc import Collection
from typing import Literal, cast

import msgspec

from holdfast.model.answer import Answer
from holdfast.model.entry import loads
from holdfast.model.event import BudgetRaised
from holdfast.model.goal import Goal
from holdfast.model.price import to_nano
from holdfast.store.database import Row, Transaction, Value
from holdfast.store.repos import approvals, delegations, log

SettingsLimit = Literal["session", "user", "day"]
LimitName = Literal["session", "goal", "user", "day"]
QUESTION = "budget-"
"""The beginning of the name of a question whether a limit may be raised, in place of the id of a call."""
TOPIC = "budget"
"""Notified when a reservation ends, because a call may wait for that."""


class PlannedCall(msgspec.Struct, frozen=True):
    """A call to reserve money for."""

    reservation: str
    session_id: str
    """Empty for a call that belongs to no session."""
    root_id: str
    """The session at the top of the tree of sub-agents: its limit is that of the whole tree."""
    user: str
    model: str
    day: str
    worker_id: str
    at: int
    amount: int | None
    """The estimate of its cost in nano-dollars; None if nobody knows."""


class Spent(msgspec.Struct, frozen=True):
    """What was spent of one limit, in nano-dollars."""

    spent: int
    """For certain, or by calls that broke off."""
    held: int = 0
    """The estimates of calls in progress."""
    running: int = 0
    """The number of calls in progress."""
    unknown: int = 0
    """How many of them have no estimate."""


class PriceRecord(msgspec.Struct, frozen=True):
    """What calls of a model cost lately."""

    priced: int = 0
    unpriced: int = 0
    cost: int = 0

    @property
    def average(self) -> int | None:
        return self.cost // self.priced if self.priced else None


def get_spent(tx: Transaction, limit: SettingsLimit, call: PlannedCall) -> Spent:
    """What was spent of the limit that applies to the call. Sum up the log first."""
    match limit:
        case "session":
            return get_tree_cost(tx, call.root_id)
        case "user":
            scope: dict[str, Value] = {"day": call.day, "sender": call.user}
            return _spent(tx.one("budget.sum_sender", **scope), tx.one("budget.cost_of_sender", **scope))
        case "day":
            scope = {"day": call.day}
            return _spent(tx.one("budget.sum_day", **scope), tx.one("budget.cost_of_day", **scope))


def get_tree_cost(tx: Transaction, session_id: str) -> Spent:
    """What the session and its sub-agents have cost, on all days. Sum up the log first."""
    scope: dict[str, Value] = {"of": session_id}
    return _spent(tx.one("budget.sum_tree", **scope), tx.one("budget.cost_of_tree", **scope))


def find_root(tx: Transaction, session_id: str) -> str:
    """The session whose limit applies to a session: that at the top of its tree."""
    return delegations.find_root(tx, session_id, "")[0]


def list_goals(tx: Transaction, session_id: str) -> list[tuple[str, Goal]]:
    """The active goals with a limit of cost that the session works for, its own or those of sessions above it."""
    rows = tx.all("budget.list_goals", of=session_id)
    found = [(cast("str", of), loads(cast("str", body), Goal)) for of, body in rows]
    return [(of, goal) for of, goal in found if goal.max_cost is not None]


def _spent(row: Row | None, summed: Row | None) -> Spent:
    assert row is not None and summed is not None, "sums without a group have one row"
    spent, held, running, unknown = cast("tuple[int, int, int, int]", row)
    return Spent(cast("int", summed[0]) + spent, held, running, unknown)


def get_price_record(tx: Transaction, model: str, *, since: str) -> PriceRecord:
    row = tx.one("usage.get_price_record", model=model, first=since)
    return PriceRecord() if row is None else PriceRecord(*row)  # type: ignore[arg-type] # the query casts them


def reserve(tx: Transaction, call: PlannedCall) -> None:
    tx.run(
        "budget.reserve",
        reservation=call.reservation,
        of=call.session_id,
        day=call.day,
        sender=call.user,
        model=call.model,
        amount=call.amount,
        holder=call.worker_id,
        at=call.at,
    )


def settle(tx: Transaction, reservation: str, cost: float | None) -> None:
    """Replace the estimate by the cost. Call it in the transaction that commits the reply."""
    tx.run("budget.settle", reservation=reservation, cost=None if cost is None else to_nano(cost))
    tx.notify(TOPIC)


def release(tx: Transaction, reservation: str) -> None:
    """Give the money back: the model did not answer."""
    tx.run("budget.release", reservation=reservation)
    tx.notify(TOPIC)


def lose(tx: Transaction, reservation: str) -> None:
    """The call broke off while the model answered: the estimate counts as spent."""
    tx.run("budget.lose", reservation=reservation)
    tx.notify(TOPIC)


def lose_unsaved(tx: Transaction, worker_id: str, *, running: Collection[str]) -> None:
    """The worker's calls that no longer run, and whose cost could not be saved: their estimates count as spent."""
    for row in tx.all("budget.list_open", holder=worker_id):
        if row[0] not in running:
            lose(tx, cast("str", row[0]))


def get_raise(tx: Transaction, session_id: str) -> int:
    """By how many nano-dollars the limit of the session was raised."""
    row = tx.one("budget.get_raise", of=session_id)
    return 0 if row is None else cast("int", row[0])


def raise_limit(tx: Transaction, session_id: str, raised: BudgetRaised, *, at: int) -> int:
    """Raise the limit of the session's tree, and record who did in the log of its root; returns by how much it is raised altogether.

    This answers the questions of the root and its running sub-agents whether it may be raised.
    """
    session_id = find_root(tx, session_id)
    for question in approvals.list_unanswered_in_tree(tx, session_id):
        if question.call_id.startswith(QUESTION):
            approvals.answer(tx, *question.call_key, answer=Answer(allowed=True), by=raised.by, at=at)
    log.annotate(tx, session_id, raised, at=at)
    tx.run("budget.raise_limit", of=session_id, amount=to_nano(raised.amount))
    tx.notify(TOPIC)
    return get_raise(tx, session_id)
