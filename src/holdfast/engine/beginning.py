"""How a turn begins: what goes into the log ahead of its words, so that every call has exactly one result.

A turn may have ended with calls that its client was to run. Whoever speaks next, through whatever face, the turn
that begins then first gives each of them its one result: what the client sent, or that it sent none.
"""

from collections.abc import Sequence

from holdfast.model.event import Event, ModelSaid, ToolEnded, TurnEnded, TurnStarted, UserSaid
from holdfast.model.message import Content, Text, ToolCall
from holdfast.model.session import Session
from holdfast.model.turn import absent
from holdfast.store import awaiting
from holdfast.store.database import Transaction
from holdfast.store.inputs import Input

LATE = "(The result of the call {call_id}, which came after the work had gone on without it.)\n"


def begin(tx: Transaction, session: Session, following: Input, worker_id: str) -> list[Event]:
    """The events that start the turn of an input."""
    assert following.said is not None, "only words start a turn"
    words = [following.said] if following.said.parts else []
    events: list[Event] = [*following.before, *words]
    place = next((n for n, event in enumerate(events) if getattr(event, "turn_id", "") == following.turn_id), 0)
    events.insert(place, TurnStarted(turn_id=following.turn_id, worker_id=worker_id, terms=following.terms))
    return settle_calls(events, awaiting.calls(tx, session))


def settle_calls(events: Sequence[Event], owed: Sequence[ToolCall]) -> list[Event]:
    """The same events with exactly one result for each call, before anything else is said.

    `owed` are the calls that had none when the first turn begins. A result that nobody waits for any more,
    because its call was closed while it was on its way, becomes words.
    """
    settled: list[Event] = []
    left = {call.id: call for call in owed}
    for event in events:
        if isinstance(event, ToolEnded):
            known = left.pop(event.call_id, None)
            settled.append(event if known is not None else _late(event))
            continue
        if isinstance(event, UserSaid | ModelSaid | TurnEnded):
            kept = event.awaiting if isinstance(event, TurnEnded) else ()
            settled += [absent(event.turn_id, call) for call in left.values() if call.id not in kept]
            left = {call.id: call for call in left.values() if call.id in kept}
        if isinstance(event, ModelSaid):
            left = {part.id: part for part in event.parts if isinstance(part, ToolCall)}
        settled.append(event)
    last = events[-1]
    if not isinstance(last, TurnEnded):
        settled += [absent(last.turn_id, call) for call in left.values()]  # type: ignore[union-attr] # all of a turn
    return settled


def _late(event: ToolEnded) -> UserSaid:
    parts: tuple[Content, ...] = (Text(LATE.format(call_id=event.call_id)), *event.parts)
    return UserSaid(turn_id=event.turn_id, parts=parts)
