"""Ids of responses and items. They contain the session and turn ids, so no lookup table is needed."""

import re

import msgspec

from holdfast.engine.admission.client_request import ContinueFrom
from holdfast.model.ids import SESSION, TURN

RESPONSE_KIND = "resp"
ID_PATTERN = re.compile(r"(resp|msg|fc|fco|rs)_([0-9a-z]{20})([0-9a-z]{20})(?:_(i?)([0-9]{1,6}))?")


class ParsedId(msgspec.Struct, frozen=True):
    """A parsed id: a turn and the number of an item in it; `given` for an input item."""

    kind: str
    after: ContinueFrom
    number: int | None = None
    given: bool = False


CONVERSATION = "conv_"
CONVERSATION_PATTERN = re.compile(r"conv_([0-9a-z]{20})")


def conversation_id(session_id: str) -> str:
    """The id of the session as a conversation."""
    return CONVERSATION + session_id.removeprefix(SESSION)


def conversation_session(id_: str) -> str | None:
    """The session of a conversation; None if this is not an id of ours."""
    found = CONVERSATION_PATTERN.fullmatch(id_)
    return None if found is None else SESSION + found[1]


def response_id(session_id: str, turn_id: str) -> str:
    return f"{RESPONSE_KIND}_{session_id.removeprefix(SESSION)}{turn_id.removeprefix(TURN)}"


def item_id(kind: str, session_id: str, turn_id: str, number: int, *, given: bool = False) -> str:
    """Build the id of the nth item of a turn."""
    return f"{kind}_{session_id.removeprefix(SESSION)}{turn_id.removeprefix(TURN)}_{'i' if given else ''}{number}"


def parse_id(id_: str) -> ParsedId | None:
    """Parse an id; None if it is not one of ours."""
    found = ID_PATTERN.fullmatch(id_)
    if found is None:
        return None
    kind, session, turn, given, number = found.groups()
    return ParsedId(
        kind, ContinueFrom(SESSION + session, TURN + turn), None if number is None else int(number), bool(given)
    )
