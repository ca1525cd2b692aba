"""Decides whether a call of a model fits into a limit. Pure.

A limit is never exceeded by more than the last call costs: a call begins if its estimate fits into what is left after all
calls in progress have taken theirs. While no other call is in progress, it may begin if anything is left at all, because
otherwise a limit below the price of one call would allow nothing.
"""

from typing import Literal

from holdfast.store.spending.budget import Spent

Decision = Literal["begin", "wait", "stop"]


def decide(limit: int, spent: Spent, estimate: int | None) -> Decision:
    """Whether the call may begin, has to wait for the cost of calls in progress, or must not begin. Amounts in nano-dollars."""
    if spent.spent >= limit:
        return "stop"
    if not spent.running:
        return "begin"
    if spent.unknown or estimate is None:
        return "wait"
    return "begin" if spent.spent + spent.held + estimate <= limit else "wait"
