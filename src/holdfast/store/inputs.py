"""Input that arrived while a turn was running, kept until its own turn comes."""

import json
from typing import Literal, cast

import msgspec

from holdfast.model.entry import decode, dumps, encode
from holdfast.model.event import KIND_OF, Event, Terms, UserSaid
from holdfast.store.database import Transaction

Mode = Literal["queue", "steer", "interrupt", "stop"]


class Input(msgspec.Struct, frozen=True):
    """Words on their way into the log. Mode `stop` has none: it only asks the running turn to end."""

    turn_id: str
    mode: Mode
    said: UserSaid | None
    before: tuple[Event, ...] = ()
    """What goes into the log ahead of the words: turns played elsewhere, results of the client's calls, more words."""
    terms: Terms = Terms()


class _Envelope(msgspec.Struct, frozen=True):
    """How an input is kept that is more than words."""

    said: str
    before: tuple[tuple[str, str], ...]
    terms: Terms


def _pack(waiting: Input) -> str:
    if waiting.said is None:
        return ""
    said = encode(waiting.said)
    if not waiting.before and waiting.terms == Terms():
        return said
    before = tuple((KIND_OF[type(event)], encode(event)) for event in waiting.before)
    return dumps(msgspec.to_builtins(_Envelope(said, before, waiting.terms)))


def _unpack(turn_id: str, mode: Mode, body: str) -> Input:
    if not body:
        return Input(turn_id, mode, None)
    if not body.startswith('{"said":'):
        return Input(turn_id, mode, cast("UserSaid", decode("user_said", body)))
    kept = msgspec.convert(json.loads(body), _Envelope)
    before = tuple(decode(kind, event) for kind, event in kept.before)
    return Input(turn_id, mode, cast("UserSaid", decode("user_said", kept.said)), before, kept.terms)


def put(tx: Transaction, session_id: str, waiting: Input, *, at: int) -> None:
    """Keep the input. The words are durable from here on."""
    tx.run("inputs.put", session=session_id, turn=waiting.turn_id, mode=waiting.mode, body=_pack(waiting), at=at)
    tx.notify(session_id)


def waiting(tx: Transaction, session_id: str) -> list[Input]:
    """All that waits, oldest first."""
    return [
        _unpack(cast("str", turn_id), cast("Mode", mode), cast("str", body))
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
