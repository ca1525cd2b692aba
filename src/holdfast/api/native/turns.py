"""Turns: send input to a session, read the result, and answer approval questions."""

import msgspec

from holdfast.api import headers
from holdfast.api.context import API_USER
from holdfast.api.errors import ApiError
from holdfast.api.native import request_models
from holdfast.api.native.endpoint import EndpointCall, EndpointReply, load_session
from holdfast.api.native.response_models import (
    AnswerResponse,
    ApprovalListResponse,
    TurnAccepted,
    TurnResponse,
    TurnState,
)
from holdfast.api.openai.content import parse_content
from holdfast.engine.admission.admit import API
from holdfast.engine.submission import NewMessage
from holdfast.interop.documents.questions import ApprovalItem
from holdfast.interop.documents.sessions import MessageItem
from holdfast.model.answer import Answer
from holdfast.model.client_transcript import BETWEEN
from holdfast.model.entry import Entry
from holdfast.model.errors import Busy
from holdfast.model.event import ModelSaid, TurnEnded, TurnStarted, UserSaid
from holdfast.model.message import Text, text_of
from holdfast.model.session import Session, as_message
from holdfast.model.times import iso
from holdfast.store.database import Transaction
from holdfast.store.repos import approvals, input_queue, log, sessions

PAGE = 500


async def start_turn(call: EndpointCall) -> EndpointReply:
    """Send input to the session. It is durable when this responds; the turn runs whether or not a client listens."""
    body: request_models.TurnRequest = call.body
    parts = parse_content(body.input, "input")
    if not any(not isinstance(part, Text) or part.text.strip() for part in parts):
        raise ApiError(400, "invalid_request", "input must not be empty", "input")
    session, engine = await load_session(call, trashed=False), call.context.engine
    mode, key = headers.parse_busy_mode(call.request.headers), headers.parse_idempotency_key(call.request.headers)
    message = NewMessage(session.id, parts, mode=mode, caller=API, key=key)
    try:
        admission = (await engine.submit(message)).admission
    except Busy:
        if not await engine.actions.free_from_dead_holder(session.id):
            raise
        admission = (await engine.submit(message)).admission
    accepted = TurnAccepted(
        session_id=session.id,
        turn_id=admission.turn_id,
        state="repeated" if admission.repeated else "running" if admission.began else "queued",
        seq=admission.session.seq,
    )
    return EndpointReply(accepted, 202, {"location": f"/v1/sessions/{session.id}/turns/{admission.turn_id}"})


async def get_turn(call: EndpointCall) -> TurnResponse:
    """Get the state and the messages of a turn."""
    session, turn_id = await load_session(call), call.path_param("turn_id")
    found = await call.context.database.read(_find, session.id, turn_id)
    if found is None:
        raise ApiError(404, "turn_not_found", f"session {session.id} has no turn {turn_id}")
    return found


def _find(tx: Transaction, session_id: str, turn_id: str) -> TurnResponse | None:
    """Find the turn in the log or in the input queue; None if it is in neither."""
    session = sessions.get(tx, session_id)
    entries: list[Entry] = []
    last = session.seq
    while last > 0:
        first = max(1, last - PAGE + 1)
        entries[:0] = log.read_verified(tx, session_id, last, first=first)
        for entry in entries[: last - first + 1]:
            event = entry.event
            if isinstance(event, TurnStarted) and event.turn_id == turn_id:
                return _describe(session, turn_id, entries)
            if isinstance(event, UserSaid) and event.input_id == turn_id:
                return _document(session, turn_id, "joined", joined=event.turn_id)
        last = first - 1
    waits = any(item.turn_id == turn_id and item.said is not None for item in input_queue.list_waiting(tx, session_id))
    return _document(session, turn_id, "queued") if waits else None


def _describe(session: Session, turn_id: str, entries: list[Entry]) -> TurnResponse:
    """Describe a turn from its log entries."""
    ours = [entry for entry in entries if getattr(entry.event, "turn_id", None) == turn_id]
    started = next(entry for entry in ours if isinstance(entry.event, TurnStarted))
    document = _document(session, turn_id, "running" if session.lease_worker is not None else "open")
    said = [message for entry in ours if (message := as_message(entry)) is not None]
    replies = [e.event for e in ours if isinstance(e.event, ModelSaid) and not e.event.partial]
    texts = [text for reply in replies if (text := text_of(reply.parts)).strip()]
    document = msgspec.structs.replace(
        document,
        started_at=iso(started.at),
        text=BETWEEN.join(texts),
        messages=[MessageItem.from_message(one) for one in said],
    )
    ended = next((entry for entry in reversed(ours) if isinstance(entry.event, TurnEnded)), None)
    if ended is not None and isinstance(ended.event, TurnEnded):
        document = msgspec.structs.replace(
            document,
            state=ended.event.outcome,
            ended_at=iso(ended.at),
            code=ended.event.code,
            reason=ended.event.reason,
            awaiting=list(ended.event.awaiting),
            usage=msgspec.to_builtins(ended.event.usage),
        )
    return document


def _document(session: Session, turn_id: str, state: TurnState, *, joined: str | None = None) -> TurnResponse:
    return TurnResponse(
        id=turn_id,
        session_id=session.id,
        state=state,
        joined=joined,
        started_at=None,
        ended_at=None,
        text="",
        code="",
        reason="",
        awaiting=[],
        usage=None,
        messages=[],
    )


async def list_approvals(call: EndpointCall) -> ApprovalListResponse:
    """List the tool calls of the session that wait for approval."""
    session = await load_session(call)
    found = await call.context.database.read(approvals.list_unanswered, session.id)
    return ApprovalListResponse([ApprovalItem.from_approval(one) for one in found])


async def list_all_approvals(call: EndpointCall) -> ApprovalListResponse:
    """List the tool calls of all sessions that wait for approval, oldest first."""
    query: request_models.ListApprovalsRequest = call.query
    found = await call.context.database.read(approvals.list_all_unanswered, query.limit)
    return ApprovalListResponse([ApprovalItem.from_approval(one) for one in found])


async def answer_approval(call: EndpointCall) -> AnswerResponse:
    """Allow or deny a tool call, once."""
    body: request_models.AnswerRequest = call.body
    session, call_id = await load_session(call, trashed=False), call.path_param("call_id")
    turn_id = body.turn_id
    if turn_id is None:
        waiting = await call.context.database.read(approvals.list_unanswered, session.id)
        turn_id = next((one.turn_id for one in waiting if one.call_id == call_id), "")
    if "\0" in turn_id:
        raise ApiError(400, "invalid_value", "turn_id contains a NUL character", "turn_id")
    answer = Answer(allowed=body.allowed, reason=body.reason)
    await call.context.engine.answer((session.id, turn_id, call_id), answer, by=API_USER)
    return AnswerResponse(session.id, turn_id, call_id, body.allowed)
