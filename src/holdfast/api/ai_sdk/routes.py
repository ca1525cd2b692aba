"""`/v1/ai-sdk/chat`: send to a chat, resume its stream, stop it, and read its messages."""

import msgspec
from starlette.responses import Response

from holdfast.api import headers as naming
from holdfast.api.ai_sdk import lookup
from holdfast.api.ai_sdk.documents import HistoryRequest, ResumeRequest, StopResponse, UIMessageListResponse
from holdfast.api.ai_sdk.history import build_messages
from holdfast.api.ai_sdk.lookup import ChatTurn
from holdfast.api.ai_sdk.reply import UIMessageReply
from holdfast.api.ai_sdk.request import ApprovalGiven, ChatBody, ParsedChat, UIMessage, list_messages, parse_chat
from holdfast.api.context import API_USER, ApiContext
from holdfast.api.errors import ApiError
from holdfast.api.headers import SessionNames
from holdfast.api.native.endpoint import Endpoint, EndpointCall
from holdfast.api.openai import admission
from holdfast.api.openai.turn_stream import TurnStream, wait_for_end
from holdfast.model.errors import Conflict, NotFound
from holdfast.model.event import ApprovalAsked
from holdfast.sse import EventStream
from holdfast.store.database import Transaction
from holdfast.store.repos import approvals, sessions, turn_lookup
from holdfast.store.repos.approvals import Approval

CHAT = "/v1/ai-sdk/chat"
PROGRAM = {"user-agent": "ai-sdk"}
"""All pages of a chat count as one program: what one has sent, another may regenerate."""


async def send(call: EndpointCall) -> Response:
    """Send a chat of the AI SDK, and stream the message of the assistant. The input is durable once the stream begins."""
    body: ChatBody = call.body
    context, named = call.context, name_chat(body.id)
    given = await context.database.read(_complete, named, list_messages(body))
    parsed = parse_chat(body, given)
    if parsed.approvals:
        return await _approve(context, named, parsed)
    if body.trigger == "regenerate-message":
        await _stop(context, named)
    request = admission.build_client_request(context, call.request, parsed.asked, named, aside="no")
    client = naming.client_id(PROGRAM, request.caller)
    request = msgspec.structs.replace(request, terms=msgspec.structs.replace(request.terms, client=client))
    received = await admission.admit_request(context, request, kept=True)
    turn = TurnStream(context, received, keyed=bool(request.key), echo=None)
    message_id = parsed.continued or received.admission.turn_id
    reply = UIMessageReply(turn, message_id)
    return EventStream(reply.pieces(), reply.headers())


async def resume(call: EndpointCall) -> Response:
    """Stream the message of the assistant that is being written, from its beginning; 204 if there is none."""
    query: ResumeRequest = call.query
    found = await call.context.database.read(lookup.find_active_turn, _named(call), query.message)
    if found is None:
        return Response(status_code=204)
    return await _follow(call.context, found)


async def stop(call: EndpointCall) -> StopResponse:
    """Interrupt the turn of the chat, or withdraw it if it is queued. Its messages stay."""
    session_id, stopped = await _stop(call.context, _named(call))
    return StopResponse(call.path_param("chat"), session_id, stopped)


async def messages(call: EndpointCall) -> UIMessageListResponse:
    """List the newest messages of the chat as UI messages; none if there is no such chat yet."""
    query: HistoryRequest = call.query
    named = _named(call)

    def work(tx: Transaction) -> UIMessageListResponse:
        session = lookup.find_session(tx, named)
        if session is None:
            return UIMessageListResponse(call.path_param("chat"), None, active=False, writing=None, messages=[])
        found = build_messages(lookup.read_newest(tx, session, query.limit))
        active = lookup.find_active_turn(tx, named)
        writing = None if active is None else active.message_id
        is_active = session.summary.open_turn is not None
        return UIMessageListResponse(call.path_param("chat"), session.id, is_active, writing, found)

    return await call.context.database.read(work)


def name_chat(chat_id: str) -> SessionNames:
    """The session of a chat: its id is a session id, an alias, or the caller's own name. Raises ApiError."""
    return naming.name_session(naming.validate_text(chat_id, "id", naming.MAX_NAME))


def _named(call: EndpointCall) -> SessionNames:
    return name_chat(call.path_param("chat"))


def _complete(tx: Transaction, named: SessionNames, given: list[UIMessage]) -> list[UIMessage]:
    """The messages, with those that the client received only a part of as they are in the log."""
    *earlier, last = given
    if all(message.role != "assistant" or message.is_complete for message in earlier):
        return given
    session = lookup.find_session(tx, named)
    if session is None:
        return given
    found = [
        message if message.role != "assistant" or message.is_complete else lookup.complete_message(tx, session, message)
        for message in earlier
    ]
    return [*(message for message in found if message is not None), last]


async def _approve(context: ApiContext, named: SessionNames, parsed: ParsedChat) -> Response:
    """Give the user's answers, and stream what follows in the same turn."""
    asked = await context.database.read(_find_questions, named, parsed.approvals)
    for question, given in zip(asked, parsed.approvals, strict=True):
        try:
            await context.engine.answer(question.call_key, given.answer, by=API_USER)
        except (Conflict, NotFound):
            continue  # answered before, or elsewhere: the stream shows what came of it
    found, known = await context.database.read(_find_answered, asked)
    if found is None:
        raise ApiError(404, "turn_not_found", f"the turn of question {asked[0].id} no longer exists")
    return await _follow(context, found, known, parsed.continued)


def _find_questions(tx: Transaction, named: SessionNames, given: tuple[ApprovalGiven, ...]) -> list[Approval]:
    session = lookup.find_session(tx, named)
    found = [approvals.find(tx, one.question_id) for one in given]
    for question in found:
        if session is None or question.session_id != session.id:
            raise NotFound(f"this chat has no question {question.id}")
    return found


def _find_answered(tx: Transaction, asked: list[Approval]) -> tuple[ChatTurn | None, int]:
    """The turn of the questions, and the last event that the client has: the newest of the questions."""
    session = sessions.get(tx, asked[-1].session_id)
    found = lookup.find_turn(tx, session, asked[-1].turn_id)
    if found is None:
        return None, 0
    calls = {question.call_id for question in asked}
    entries = turn_lookup.read_entries(tx, session.id, found.position)
    seqs = [one.seq for one in entries if isinstance(one.event, ApprovalAsked) and one.event.call_id in calls]
    return found, max(seqs, default=0)


async def _follow(context: ApiContext, found: ChatTurn, known: int = 0, message_id: str = "") -> Response:
    received = await context.engine.submit(found.admitted, stream="durable")
    turn = TurnStream(context, received, keyed=True, echo=None)
    reply = UIMessageReply(
        turn, message_id or found.message_id, before=found.before, known=known, replayed=found.replayed
    )
    return EventStream(reply.pieces(), reply.headers())


async def _stop(context: ApiContext, named: SessionNames) -> tuple[str | None, bool]:
    """Stop the turn of the chat and wait for its end; returns the session, and whether there was something to stop."""
    found = await context.database.read(lookup.find_active_turn, named)
    if found is None:
        session = await context.database.read(lookup.find_session, named)
        return None if session is None else session.id, False
    stopped = await context.engine.cancel(found.session.id, found.position.turn_id)
    if stopped:
        await wait_for_end(context, found.admitted)
    return found.session.id, stopped


ENDPOINTS = (
    Endpoint("POST", CHAT, send, body=ChatBody),
    Endpoint("GET", f"{CHAT}/{{chat}}/stream", resume, query=ResumeRequest),
    Endpoint("POST", f"{CHAT}/{{chat}}/stop", stop, StopResponse),
    Endpoint("GET", f"{CHAT}/{{chat}}/messages", messages, UIMessageListResponse, query=HistoryRequest, large=True),
)
