"""Input that arrived while a turn was running, kept until its own turn comes."""

from typing import Literal, cast

import msgspec

from holdfast.model.event import UserSaid, decode, encode
from holdfast.store.database import Transaction

Mode = Literal["queue", "steer", "interrupt", "stop"]


class Input(msgspec.Struct, frozen=True):
    """Words on their way into the log. Mode `stop` has none: it only asks the running turn to end."""

    turn_id: str
    mode: Mode
    said: UserSaid | None


def put(tx: Transaction, session_id: str, waiting: Input, *, at: int) -> None:
    """Keep the input. The words are durable from here on."""
    body = "" if waiting.said is None else encode(waiting.said)
    tx.run("inputs.put", session=session_id, turn=waiting.turn_id, mode=waiting.mode, body=body, at=at)
    tx.notify(session_id)


def waiting(tx: Transaction, session_id: str) -> list[Input]:
    """All that waits, oldest first."""
    return [
        Input(
            cast("str", turn_id),
            cast("Mode", mode),
            cast("UserSaid", decode("user_said", cast("str", body))) if body else None,
        )
        for turn_id, mode, body, _ in tx.all("inputs.waiting", session=session_id)
    ]


def drop(tx: Transaction, session_id: str, turn_id: str) -> None:
    """Forget an input; call it in the transaction that puts its words into the log."""
    tx.run("inputs.drop", session=session_id, turn=turn_id)


def take_next(tx: Transaction, session_id: str) -> Input | None:
    """The input whose turn comes next, taken out of the queue: what interrupted goes first, then the order of arrival.

    Mere requests to stop are dropped: the turn they meant has ended.
    """
    held = waiting(tx, session_id)
    for item in held:
        if item.said is None:
            drop(tx, session_id, item.turn_id)
    words = [item for item in held if item.said is not None]
    if not words:
        return None
    following = next((item for item in words if item.mode == "interrupt"), words[0])
    drop(tx, session_id, following.turn_id)
    return following
