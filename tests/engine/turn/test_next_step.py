"""`next_step` as a table."""

import pytest

from holdfast.engine.context.budget import ENOUGH, SHORT, BudgetDecision
from holdfast.engine.turn.next_step import (
    CallModel,
    CloseUnknown,
    CompactContext,
    FinishTurn,
    RefuseCalls,
    RunTools,
    next_step,
)
from holdfast.model.event import RequestOptions
from holdfast.model.message import ToolCall
from holdfast.model.turn import Turn

TWO_CALLS = RequestOptions(max_tool_calls=2)
MAIL, LOOK = ToolCall("c1", "mail"), ToolCall("c2", "look")

TABLE = [
    ("no turn is open", Turn(), None),
    ("the model has something to answer", Turn(id="t", owes_reply=True), CallModel()),
    ("the model asked for tools", Turn(id="t", open_calls=(MAIL, LOOK)), RunTools((MAIL, LOOK))),
    (
        "a call had started when its worker died",
        Turn(id="t", open_calls=(MAIL, LOOK), started=frozenset({"c1"})),
        CloseUnknown((MAIL,)),
    ),
    ("a repeatable one had started", Turn(id="t", open_calls=(LOOK,), started=frozenset({"c2"})), RunTools((LOOK,))),
    ("both had started", Turn(id="t", open_calls=(MAIL, LOOK), started=frozenset({"c1", "c2"})), CloseUnknown((MAIL,))),
    (
        "the request allows one more call",
        Turn(id="t", open_calls=(MAIL, LOOK), tool_calls=1, terms=TWO_CALLS),
        RunTools((MAIL,)),
    ),
    (
        "the request allows no more calls",
        Turn(id="t", open_calls=(LOOK,), tool_calls=2, terms=TWO_CALLS),
        RefuseCalls((LOOK,)),
    ),
    (
        "the last call it allows is repeated",
        Turn(id="t", open_calls=(LOOK,), started=frozenset({"c2"}), tool_calls=2, terms=TWO_CALLS),
        RunTools((LOOK,)),
    ),
    ("the model has answered", Turn(id="t", steps=1), FinishTurn("done")),
    ("one step is left", Turn(id="t", owes_reply=True, steps=2), CallModel()),
]


@pytest.mark.parametrize(("situation", "turn", "step"), TABLE, ids=[row[0] for row in TABLE])
def test_the_next_step_of_a_turn(situation: str, turn: Turn, step: object) -> None:
    assert next_step(turn, repeatable=lambda name: name == "look", max_steps=3) == step


def test_the_step_limit_ends_the_turn_only_before_a_model_call() -> None:
    def step(turn: Turn) -> object:
        return next_step(turn, repeatable=lambda name: False, max_steps=3)

    assert isinstance(step(Turn(id="t", owes_reply=True, steps=3)), FinishTurn)
    assert step(Turn(id="t", steps=3)) == FinishTurn("done")
    assert step(Turn(id="t", steps=3, open_calls=(MAIL,))) == RunTools((MAIL,))


NONE = BudgetDecision("none", "too long", "context_too_long")
OWED = Turn(id="t", owes_reply=True)


@pytest.mark.parametrize(
    ("turn", "room", "step"),
    [
        (OWED, ENOUGH, CallModel()),
        (OWED, SHORT, CompactContext()),
        (OWED, NONE, FinishTurn("failed", "too long", "context_too_long")),
        (Turn(id="t", open_calls=(MAIL,)), NONE, RunTools((MAIL,))),
        (Turn(id="t"), NONE, FinishTurn("done")),
    ],
)
def test_the_context_budget_matters_only_before_a_model_call(turn: Turn, room: BudgetDecision, step: object) -> None:
    assert next_step(turn, repeatable=lambda name: False, max_steps=3, room=lambda: room) == step
