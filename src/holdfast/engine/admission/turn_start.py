"""The events that start a turn, so that every tool call has exactly one result.

A turn may have ended with calls that its client was to run. The next turn, wherever its input comes from, first gives
each of them its result: what the client sent, or that it sent none.
"""

import hashlib
from collections.abc import Sequence

import msgspec

from holdfast.model.event import Event, ModelSaid, Reopened, SystemChanged, ToolEnded, TurnEnded, TurnStarted, UserSaid
from holdfast.model.message import Content, Text, ToolCall
from holdfast.model.session import Session
from holdfast.model.turn import absent
from holdfast.store.database import Transaction
from holdfast.store.repos import sessions
from holdfast.store.repos.input_queue import Input

TURN_EVENTS = (TurnStarted, UserSaid, ModelSaid, ToolEnded)
LATE = "(The result of the call {call_id}, which arrived after the turn had continued without it.)\n"


def begin(
    tx: Transaction, session: Session, following: Input, worker_id: str, awaited: Sequence[ToolCall]
) -> list[Event]:
    """The events that start the turn of an input. `awaited` are the calls of the turn before that have no result yet."""
    assert following.said is not None, "only a message starts a turn"
    input_events = [following.said] if following.said.parts else []
    events: list[Event] = [*following.before, *input_events]
    index = next((n for n, event in enumerate(events) if getattr(event, "turn_id", "") == following.turn_id), 0)
    terms = msgspec.structs.replace(following.terms, system=None)
    started = TurnStarted(turn_id=following.turn_id, worker_id=worker_id, terms=terms)
    events[index:index] = [*_system_change(tx, session, following.terms.system), started]
    return settle_calls(events, awaited)


def reopening(session: Session) -> list[Event]:
    """New input reopens an ended session."""
    return [] if session.summary.ended_at is None else [Reopened(reason="new input")]


def _system_change(tx: Transaction, session: Session, given: str | None) -> list[SystemChanged]:
    """The event that records a new system text, if the request has one.

    This is decided when the turn starts, because a turn that was queued before it may change the text as well.
    """
    if given is None or given.strip() == (sessions.get_system_text(tx, session) or "").strip():
        return []
    return [SystemChanged(system=given, sha256=hashlib.sha256(given.encode("utf-8", "surrogatepass")).hexdigest())]


def settle_calls(events: Sequence[Event], owed: Sequence[ToolCall]) -> list[Event]:
    """The same events with exactly one result for each call, before any other message.

    `owed` are the calls without a result when the first turn begins. A result whose call was closed meanwhile becomes a
    message of the user.
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
    if not isinstance(events[-1], TurnEnded):
        turn_id = next(event.turn_id for event in reversed(events) if isinstance(event, TURN_EVENTS))
        settled += [absent(turn_id, call) for call in left.values()]
    return settled


def _late(event: ToolEnded) -> UserSaid:
    parts: tuple[Content, ...] = (Text(LATE.format(call_id=event.call_id)), *event.parts)
    return UserSaid(turn_id=event.turn_id, parts=parts)
