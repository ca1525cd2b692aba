"""Which calls may begin, wait or must not begin."""

import pytest

from holdfast.engine.spending.decide import Decision, decide
from holdfast.store.spending.budget import Spent

TABLE: list[tuple[Spent, int | None, Decision]] = [
    (Spent(0), 5, "begin"),
    (Spent(9), 5, "begin"),
    (Spent(9), None, "begin"),
    (Spent(10), 0, "stop"),
    (Spent(11), 5, "stop"),
    (Spent(0, held=5, running=1), 5, "begin"),
    (Spent(0, held=6, running=1), 5, "wait"),
    (Spent(0, held=50, running=9), 0, "wait"),
    (Spent(0, held=0, running=1, unknown=1), 1, "wait"),
    (Spent(0, held=1, running=1), None, "wait"),
    (Spent(10, held=1, running=1), 1, "stop"),
]


@pytest.mark.parametrize(("spent", "estimate", "decision"), TABLE)
def test_promise_31_a_call_begins_only_if_it_fits_beside_those_in_progress(
    spent: Spent, estimate: int | None, decision: Decision
) -> None:
    assert decide(10, spent, estimate) == decision


def test_a_limit_of_nothing_allows_nothing() -> None:
    assert decide(0, Spent(0), 0) == "stop"
