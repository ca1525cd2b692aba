"""Turns: words said to a session, what became of them, and questions that wait for a person's word."""

from typing import Any

import msgspec

from holdfast.api import asked, intake, naming
from holdfast.api.content import content
from holdfast.api.doors import Call, Said, session_of
from holdfast.api.errors import Refusal
from holdfast.interop import reports, shapes
from holdfast.model.entry import Entry
from holdfast.model.errors import Busy
from holdfast.model.event import ModelSaid, TurnEnded, TurnStarted, UserSaid
from holdfast.model.message import Text, text_of
from holdfast.model.session import Session, as_message
from holdfast.model.shown import BETWEEN
from holdfast.store import approvals, inputs, log, sessions
from holdfast.store.database import Transaction

Json = dict[str, Any]
PAGE = 500
BY = "the API"


async def begin(call: Call) -> Said:
    """Say something to the session. The words are safe when this answers; the turn is played whoever listens."""
    body: asked.TurnAsked = call.body
    parts = content(body.input, "input")
    if not any(not isinstance(part, Text) or part.text.strip() for part in parts):
        raise Refusal(400, "invalid_request", "input must not be empty", "input")
    session, engine = await session_of(call, trashed=False), call.house.engine
    mode, key = naming.busy(call.request.headers), naming.key(call.request.headers)
    try:
        admission = await engine.admit(session.id, parts, mode=mode, caller=intake.caller(""), key=key)
    except Busy:
        if not await engine.free_from_the_dead(session.id):
            raise
        admission = await engine.admit(session.id, parts, mode=mode, caller=intake.caller(""), key=key)
    state = "repeated" if admission.repeated else "running" if admission.began else "queued"
    begun = {"session_id": session.id, "turn_id": admission.turn_id, "state": state, "seq": admission.session.seq}
    return Said(begun, 202, {"location": f"/v1/sessions/{session.id}/turns/{admission.turn_id}"})


async def get(call: Call) -> Json:
    """What became of a turn, and what was said in it."""
    session, turn_id = await session_of(call), call.place("turn_id")
    found = await call.house.database.read(_find, session.id, turn_id)
    if found is None:
        raise Refusal(404, "turn_not_found", f"session {session.id} has no turn {turn_id}")
    return found


def _find(tx: Transaction, session_id: str, turn_id: str) -> Json | None:
    """The turn in the log, or in the queue; None if it is in neither."""
    session = sessions.get(tx, session_id)
    entries: list[Entry] = []
    last = session.seq
    while last > 0:
        first = max(1, last - PAGE + 1)
        entries[:0] = log.read_proved(tx, session_id, last, first=first)
        for entry in entries[: last - first + 1]:
            event = entry.event
            if isinstance(event, TurnStarted) and event.turn_id == turn_id:
                return _told(session, turn_id, entries)
            if isinstance(event, UserSaid) and event.input_id == turn_id:
                return _document(session, turn_id, "joined", joined=event.turn_id)
        last = first - 1
    waits = any(item.turn_id == turn_id and item.said is not None for item in inputs.waiting(tx, session_id))
    return _document(session, turn_id, "queued") if waits else None


def _told(session: Session, turn_id: str, entries: list[Entry]) -> Json:
    """What the log says about a turn."""
    ours = [entry for entry in entries if getattr(entry.event, "turn_id", None) == turn_id]
    started = next(entry for entry in ours if isinstance(entry.event, TurnStarted))
    told = _document(session, turn_id, "running" if session.lease_worker is not None else "open")
    said = [message for entry in ours if (message := as_message(entry)) is not None]
    replies = [e.event for e in ours if isinstance(e.event, ModelSaid) and not e.event.partial]
    texts = [text for reply in replies if (text := text_of(reply.parts)).strip()]
    told |= {
        "started_at": shapes.time(started.at),
        "text": BETWEEN.join(texts),
        "messages": [shapes.message(one) for one in said],
    }
    ended = next((entry for entry in reversed(ours) if isinstance(entry.event, TurnEnded)), None)
    if ended is not None and isinstance(ended.event, TurnEnded):
        told |= {
            "state": ended.event.outcome,
            "ended_at": shapes.time(ended.at),
            "code": ended.event.code,
            "reason": ended.event.reason,
            "awaiting": list(ended.event.awaiting),
            "usage": msgspec.to_builtins(ended.event.usage),
        }
    return told


def _document(session: Session, turn_id: str, state: str, *, joined: str | None = None) -> Json:
    return {
        "id": turn_id,
        "session_id": session.id,
        "state": state,
        "joined": joined,
        "started_at": None,
        "ended_at": None,
        "text": "",
        "code": "",
        "reason": "",
        "awaiting": [],
        "usage": None,
        "messages": [],
    }


async def questions(call: Call) -> Json:
    """Tool calls of the session that wait for a person's word."""
    session = await session_of(call)
    found = await call.house.engine.questions(session.id)
    return {"approvals": [reports.approval(one) for one in found]}


async def every_question(call: Call) -> Json:
    """Tool calls of all sessions that wait for a person's word, the oldest first."""
    query: asked.ApprovalsAsked = call.query
    found = await call.house.database.read(approvals.every_open, query.limit)
    return {"approvals": [reports.approval(one) for one in found]}


async def answer(call: Call) -> Json:
    """Answer a question, once: may the call be run?"""
    body: asked.Answer = call.body
    session, call_id = await session_of(call, trashed=False), call.place("call_id")
    turn_id = body.turn_id
    if turn_id is None:
        turn_id = next(
            (one.turn_id for one in await call.house.engine.questions(session.id) if one.call_id == call_id), ""
        )
    if "\0" in turn_id:
        raise Refusal(400, "invalid_value", "a turn's id holds no such character", "turn_id")
    await call.house.engine.approve(session.id, turn_id, call_id, allowed=body.allowed, by=BY, reason=body.reason)
    return {"session_id": session.id, "turn_id": turn_id, "call_id": call_id, "allowed": body.allowed}
