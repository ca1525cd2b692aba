"""Create responses: over HTTP, or for a message on a WebSocket."""

import asyncio
from collections.abc import Collection

import msgspec
from starlette.requests import HTTPConnection, Request
from starlette.responses import Response

from holdfast import sse
from holdfast.api import headers as naming
from holdfast.api.context import ApiContext, get_context
from holdfast.api.headers import SessionNames
from holdfast.api.openai import admission as admission_
from holdfast.api.openai.chat import LARGE_BODY
from holdfast.api.openai.responses import lookup
from holdfast.api.openai.responses import request as request_parser
from holdfast.api.openai.responses.document import ResponseFacts
from holdfast.api.openai.responses.ids import conversation_session
from holdfast.api.openai.responses.reply import ResponsesReply
from holdfast.api.openai.responses.request import ParsedResponsesRequest
from holdfast.api.openai.turn_stream import TurnStream
from holdfast.engine.admission.client_request import ClientRequest, ContinueFrom
from holdfast.engine.submission import SubmittedTurn
from holdfast.model.ids import SESSION


async def create(request: Request) -> Response:
    """Create a response. The request is durable once admitted, even if the client disconnects."""
    context = get_context(request)
    body = await request.body()
    parse = request_parser.parse
    wanted = await asyncio.to_thread(parse, body) if len(body) > LARGE_BODY else parse(body)
    answer = await start_response(context, request, wanted)
    if wanted.stream:
        return sse.EventStream(answer.pieces(), answer.turn.headers())
    if wanted.background:
        return await answer.turn.mark_answered(answer.at_once(), request)
    return await answer.turn.mark_answered(await answer.whole(), request)


async def start_response(
    context: ApiContext, connection: HTTPConnection, wanted: ParsedResponsesRequest, known: Collection[str] = ()
) -> ResponsesReply:
    """Admit the request: from then on it is durable. Raises ApiError.

    `known` are responses that can be continued here although they were not to be stored.
    """
    wanted, referred = await lookup.resolve_references(context, wanted)
    named = _named(context, connection, wanted, referred)
    after = await _after(context, wanted, known)
    arrival = msgspec.structs.replace(admission_.build_client_request(context, connection, wanted, named), after=after)
    received = await admission_.admit_request(context, arrival, kept=wanted.stream, param="input")
    turn = TurnStream(context, received, keyed=bool(arrival.key), echo=named.echo)
    return ResponsesReply(turn, _about(arrival, received))


def _named(
    context: ApiContext, connection: HTTPConnection, wanted: ParsedResponsesRequest, referred: str | None
) -> SessionNames:
    """Return the session named by the body, else by the headers, else by the referenced items.

    A request with previous_response_id ignores other names.
    """
    named = naming.parse_session_names(connection.headers, context.settings.api.session_headers, wanted.cache_key)
    if wanted.previous is not None:
        return SessionNames(echo=named.echo)
    if wanted.conversation is not None:
        value = naming.validate_text(wanted.conversation, "conversation", naming.MAX_NAME)
        value = conversation_session(value) or value
        channel = None if value.startswith(SESSION) else naming.CHANNEL_PREFIX + value
        return SessionNames(value, channel, named.echo)
    if named.ref is None and named.channel is None:
        return SessionNames(referred, None, named.echo)
    return named


async def _after(context: ApiContext, wanted: ParsedResponsesRequest, known: Collection[str]) -> ContinueFrom | None:
    """Return the turn to continue from."""
    if wanted.previous is None:
        return None
    found = await lookup.find_response(context, wanted.previous, "previous_response_id", known)
    return ContinueFrom(found.session.id, found.about.turn_id)


def _about(arrival: ClientRequest, received: SubmittedTurn) -> ResponseFacts:
    admission = received.admission
    return ResponseFacts(admission.session.id, admission.turn_id, admission.turn_id, received.model, arrival.terms)
