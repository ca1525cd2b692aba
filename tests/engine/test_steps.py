"""`next_step` as a table."""

import pytest

from holdfast.engine.room import ENOUGH, SHORT, Room
from holdfast.engine.steps import Act, Ask, CloseUnknown, Compact, Finish, next_step
from holdfast.model.message import ToolCall
from holdfast.model.turn import Turn

MAIL, LOOK = ToolCall("c1", "mail"), ToolCall("c2", "look")

TABLE = [
    ("no turn is open", Turn(), None),
    ("the model has something to answer", Turn(id="t", owes_reply=True), Ask()),
    ("the model asked for tools", Turn(id="t", open_calls=(MAIL, LOOK)), Act((MAIL, LOOK))),
    (
        "a call had started when its worker died",
        Turn(id="t", open_calls=(MAIL, LOOK), started=frozenset({"c1"})),
        CloseUnknown((MAIL,)),
    ),
    ("a repeatable one had started", Turn(id="t", open_calls=(LOOK,), started=frozenset({"c2"})), Act((LOOK,))),
    ("both had started", Turn(id="t", open_calls=(MAIL, LOOK), started=frozenset({"c1", "c2"})), CloseUnknown((MAIL,))),
    ("the model has answered", Turn(id="t", steps=1), Finish("done")),
    ("one step is left", Turn(id="t", owes_reply=True, steps=2), Ask()),
]


@pytest.mark.parametrize(("situation", "turn", "step"), TABLE, ids=[row[0] for row in TABLE])
def test_what_a_turn_needs_next(situation: str, turn: Turn, step: object) -> None:
    assert next_step(turn, repeatable=lambda name: name == "look", max_steps=3) == step


def test_the_limit_of_steps_ends_the_turn_only_when_the_model_would_be_asked_again() -> None:
    def step(turn: Turn) -> object:
        return next_step(turn, repeatable=lambda name: False, max_steps=3)

    assert isinstance(step(Turn(id="t", owes_reply=True, steps=3)), Finish)
    assert step(Turn(id="t", steps=3)) == Finish("done")
    assert step(Turn(id="t", steps=3, open_calls=(MAIL,))) == Act((MAIL,))


NONE = Room("none", "too long", "context_too_long")
OWED = Turn(id="t", owes_reply=True)


@pytest.mark.parametrize(
    ("turn", "room", "step"),
    [
        (OWED, ENOUGH, Ask()),
        (OWED, SHORT, Compact()),
        (OWED, NONE, Finish("failed", "too long", "context_too_long")),
        (Turn(id="t", open_calls=(MAIL,)), NONE, Act((MAIL,))),
        (Turn(id="t"), NONE, Finish("done")),
    ],
)
def test_room_matters_only_when_the_model_would_be_asked(turn: Turn, room: Room, step: object) -> None:
    assert next_step(turn, repeatable=lambda name: False, max_steps=3, room=lambda: room) == step
