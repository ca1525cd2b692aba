"""The queue of input that arrived while a turn was running."""

import json
from typing import Literal, cast

import msgspec

from holdfast.model.entry import decode, dumps, encode
from holdfast.model.event import KIND_OF, ChildEnded, Event, RequestOptions, UserSaid
from holdfast.store.database import Row, Transaction

InputMode = Literal["queue", "steer", "interrupt", "stop"]


class Input(msgspec.Struct, frozen=True):
    """Queued input. Mode `stop` has no message: it requests the end of the turn `turn_id`."""

    turn_id: str
    """The turn of the message; with mode `stop`, the turn that is to end."""
    mode: InputMode
    said: UserSaid | None
    before: tuple[Event, ...] = ()
    """Events for the log before the message: turns from elsewhere, results of the client's calls, further messages."""
    terms: RequestOptions = RequestOptions()

    @property
    def completions(self) -> list[ChildEnded]:
        """The ends of sub-agents that it brings."""
        return [event for event in self.before if isinstance(event, ChildEnded)]


class _Envelope(msgspec.Struct, frozen=True):
    """The stored form of an input with more than text."""

    said: str
    before: tuple[tuple[str, str], ...]
    terms: RequestOptions


def _pack(waiting: Input) -> str:
    if waiting.said is None:
        return ""
    said = encode(waiting.said)
    if not waiting.before and waiting.terms == RequestOptions():
        return said
    before = tuple((KIND_OF[type(event)], encode(event)) for event in waiting.before)
    return dumps(msgspec.to_builtins(_Envelope(said, before, waiting.terms)))


def _unpack(turn_id: str, mode: InputMode, body: str) -> Input:
    if not body:
        return Input(turn_id, mode, None)
    if not body.startswith('{"said":'):
        return Input(turn_id, mode, cast("UserSaid", decode("user_said", body)))
    kept = msgspec.convert(json.loads(body), _Envelope)
    before = tuple(decode(kind, event) for kind, event in kept.before)
    return Input(turn_id, mode, cast("UserSaid", decode("user_said", kept.said)), before, kept.terms)


def put(tx: Transaction, session_id: str, waiting: Input, *, at: int) -> None:
    """Add the input to the queue; it is durable with the commit."""
    tx.run("input_queue.put", session=session_id, turn=waiting.turn_id, mode=waiting.mode, body=_pack(waiting), at=at)
    tx.notify(session_id)


def request_stop(tx: Transaction, session_id: str, turn_id: str, *, at: int) -> None:
    """Store a request to stop this turn only. A repeat changes nothing."""
    tx.run("input_queue.request_stop", session=session_id, turn=turn_id, at=at)
    tx.notify(session_id)


def list_waiting(tx: Transaction, session_id: str, *, running: str | None = None) -> list[Input]:
    """The queued messages, oldest first, and the request to stop the turn that is `running`.

    A stop request for another turn is ignored: that turn has ended.
    """
    return _inputs(tx.all("input_queue.list_waiting", session=session_id), running)


def list_sessions(tx: Transaction, worker_id: str) -> frozenset[str]:
    """The sessions of a worker that have queued messages or stop requests."""
    return frozenset(cast("str", row[0]) for row in tx.all("input_queue.list_sessions", worker=worker_id))


def _inputs(rows: list[Row], running: str | None = None) -> list[Input]:
    return [
        _unpack(cast("str", turn_id), cast("InputMode", mode), cast("str", body))
        for turn_id, mode, body, _ in rows
        if mode != "stop" or turn_id == running
    ]


def delete(tx: Transaction, session_id: str, turn_id: str) -> None:
    """Remove an input; call it in the transaction that appends it to the log."""
    tx.run("input_queue.delete", session=session_id, turn=turn_id)


def delete_stop_requests(tx: Transaction, session_id: str) -> None:
    """Remove all stop requests; call it in the transaction that ends the turn."""
    tx.run("input_queue.delete_stop_requests", session=session_id)


def end_turn(tx: Transaction, session_id: str, *, take: bool) -> Input | None:
    """Delete all stop requests, because their turn has ended; with `take`, take the next input like `take_next`."""
    rows = tx.all("input_queue.list_waiting", session=session_id)
    if any(mode == "stop" for _, mode, _, _ in rows):
        delete_stop_requests(tx, session_id)
    return _take(tx, session_id, _inputs(rows)) if take else None


def take_next(tx: Transaction, session_id: str) -> Input | None:
    """Remove and return the next input: an interrupting one first, otherwise in the order of arrival."""
    return _take(tx, session_id, list_waiting(tx, session_id))


def _take(tx: Transaction, session_id: str, waiting: list[Input]) -> Input | None:
    if not waiting:
        return None
    following = next((item for item in waiting if item.mode == "interrupt"), waiting[0])
    delete(tx, session_id, following.turn_id)
    return following
