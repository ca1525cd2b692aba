"""The ids of responses and of what is in them. They say which turn of which session is meant, so nothing has to be kept to find it."""

import re

import msgspec

from holdfast.engine.arrive import After
from holdfast.model.ids import SESSION, TURN

RESPONSE = "resp"
SHAPE = re.compile(r"(resp|msg|fc|fco|rs)_([0-9a-z]{20})([0-9a-z]{20})(?:_(i?)([0-9]{1,6}))?")


class Meant(msgspec.Struct, frozen=True):
    """What an id stands for: a turn, and its nth item; `given` if the client gave it."""

    kind: str
    after: After
    number: int | None = None
    given: bool = False


def response(session_id: str, turn_id: str) -> str:
    return f"{RESPONSE}_{session_id.removeprefix(SESSION)}{turn_id.removeprefix(TURN)}"


def item(kind: str, session_id: str, turn_id: str, number: int, *, given: bool = False) -> str:
    """The id of the nth item of a turn."""
    return f"{kind}_{session_id.removeprefix(SESSION)}{turn_id.removeprefix(TURN)}_{'i' if given else ''}{number}"


def read(id_: str) -> Meant | None:
    """What the id stands for; None if it is none of ours."""
    found = SHAPE.fullmatch(id_)
    if found is None:
        return None
    kind, session, turn, given, number = found.groups()
    return Meant(kind, After(SESSION + session, TURN + turn), None if number is None else int(number), bool(given))
