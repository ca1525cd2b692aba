"""`/v1/responses/{id}`: retrieve, stream, delete and cancel a response, and list its input."""

from collections.abc import AsyncGenerator

from starlette.requests import Request
from starlette.responses import Response

from holdfast import sse
from holdfast.api.context import get_context
from holdfast.api.errors import ApiError
from holdfast.api.openai.paging import page_of, parse_number, parse_page, refuse_unknown
from holdfast.api.openai.responses import lookup
from holdfast.api.openai.responses.lookup import StoredResponse
from holdfast.api.openai.responses.reply import ResponsesReply, json_response
from holdfast.api.openai.responses.request import ACCEPTED_INCLUDES
from holdfast.api.openai.turn_stream import TurnStream, wait_for_end
from holdfast.engine.submission import AdmittedTurn
from holdfast.model.entry import Entry
from holdfast.model.event import InputDropped, ResponseDeleted
from holdfast.store.repos import log

MAX_SEQUENCE_NUMBER = 2**53


async def retrieve(request: Request) -> Response:
    """Retrieve a response, or stream it from a sequence number."""
    context = get_context(request)
    wants_stream, after = _retrieval(request)
    known = await lookup.find_response(context, request.path_params["id"])
    if not wants_stream:
        return json_response(known.document(), _headers(known))
    received = await context.engine.submit(AdmittedTurn.at(known.session, known.position), stream="durable")
    answer = ResponsesReply(TurnStream(context, received, keyed=True, echo=None), known.about, after)
    dropped = known.position.dropped
    return sse.EventStream(answer.pieces() if dropped is None else _never_started(answer, dropped), _headers(known))


async def _never_started(answer: ResponsesReply, dropped: InputDropped) -> AsyncGenerator[bytes, None]:
    """Stream a response whose turn never started."""
    answer.turn.received.close()
    gone = Entry(0, 0, dropped)
    for event in [*answer.events.begin(), *answer.events.add(gone)]:
        yield sse.format_event(event, name=str(event["type"]))


def _retrieval(request: Request) -> tuple[bool, int]:
    """Parse the query: whether to stream, and after which sequence number."""
    asked = dict(request.query_params)
    for name in request.query_params.getlist("include") + request.query_params.getlist("include[]"):
        if name not in ACCEPTED_INCLUDES:
            raise ApiError(400, "unsupported_parameter", f"include: {name} is not supported", "include")
    refuse_unknown(asked, ("stream", "starting_after", "include", "include[]", "include_obfuscation"))
    if asked.get("include_obfuscation", "false") != "false":
        message = "parameter include_obfuscation is not supported"
        raise ApiError(400, "unsupported_parameter", message, "include_obfuscation")
    if asked.get("stream", "false") not in ("true", "false"):
        raise ApiError(400, "invalid_value", "stream must be true or false", "stream")
    wants_stream = asked.get("stream") == "true"
    if "starting_after" in asked and not wants_stream:
        raise ApiError(400, "invalid_value", "starting_after needs stream=true", "starting_after")
    return wants_stream, parse_number(asked, "starting_after", -1, 0, MAX_SEQUENCE_NUMBER)


def _headers(known: StoredResponse) -> dict[str, str]:
    epoch = str(known.session.summary.epoch)
    return {"x-session-id": known.session.id, "x-session-epoch": epoch, "x-turn-id": known.about.turn_id}


async def delete(request: Request) -> Response:
    """Delete the response: its id is no longer found. Its messages stay in the session."""
    context = get_context(request)
    known = await lookup.find_response(context, request.path_params["id"])
    gone = ResponseDeleted(turn_id=known.about.turn_id)
    await context.database.write(log.annotate, known.session.id, gone, at=context.engine.services.clock.now())
    return json_response({"id": known.about.id, "object": "response", "deleted": True}, _headers(known))


async def cancel(request: Request) -> Response:
    """Cancel a response: end its turn, or withdraw queued input. A finished one stays as it is."""
    context = get_context(request)
    known = await lookup.find_response(context, request.path_params["id"])
    if known.position.is_open and await context.engine.cancel(known.session.id, known.position.turn_id):
        await wait_for_end(context, AdmittedTurn.at(known.session, known.position))
        known = await lookup.find_response(context, known.about.id)
    return json_response(known.document(), _headers(known))


async def input_items(request: Request) -> Response:
    """List the input items page by page, newest first by default."""
    page = parse_page(request.query_params)
    known = await lookup.find_response(get_context(request), request.path_params["id"])
    return json_response(page_of(lookup.list_input_items(known), page), _headers(known))
