"""`POST /v1/messages`, as one response or as a stream, and `POST /v1/messages/count_tokens`."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from holdfast import sse
from holdfast.api import headers as naming
from holdfast.api.anthropic import claude_code
from holdfast.api.anthropic import request as request_parser
from holdfast.api.anthropic.errors import error_document
from holdfast.api.anthropic.reply import PING, MessageEvents
from holdfast.api.anthropic.request import ParsedMessagesRequest
from holdfast.api.anthropic.token_count import estimate_tokens
from holdfast.api.context import ApiContext, get_context
from holdfast.api.errors import ApiError, translate
from holdfast.api.headers import SessionNames
from holdfast.api.models import SESSION_MODEL, ModelList
from holdfast.api.openai import admission
from holdfast.api.openai.chat import LARGE_BODY
from holdfast.api.openai.chat_request import FORWARDING_PROVIDERS
from holdfast.api.openai.turn_stream import TurnStream
from holdfast.engine.admission.client_request import ClientRequest
from holdfast.model.errors import HoldfastError
from holdfast.providers import registry
from holdfast.providers.anthropic.request import NAME

VENDOR_PREFIX = "claude-"
"""Begins the names of Anthropic's models, which its clients send by themselves."""


async def create_message(request: Request) -> Response:
    """Create a message. The request is durable once admitted, even if the client disconnects."""
    context = get_context(request)
    request_parser.check_version(request.headers)
    body = await request.body()
    parse = request_parser.parse
    asked = await asyncio.to_thread(parse, body) if len(body) > LARGE_BODY else parse(body)
    named, arrival = _arrival(context, request, asked)
    received = await admission.admit_request(context, arrival)
    turn = TurnStream(context, received, keyed=bool(arrival.key), echo=named.echo)
    answer = MessageReply(turn, request.state.request_id, shows_thinking=asked.shows_thinking)
    if asked.stream:
        return sse.EventStream(answer.pieces(), turn.headers())
    return await turn.mark_answered(await answer.whole(), request)


async def count_tokens(request: Request) -> Response:
    """Estimate the tokens of a request. Nothing is stored."""
    request_parser.check_version(request.headers)
    body = await request.body()
    models = get_context(request).models
    parse = request_parser.parse_count
    asked = await asyncio.to_thread(parse, body) if len(body) > LARGE_BODY else parse(body)
    models.resolve(_model(models, asked.model))
    is_large = len(body) > LARGE_BODY
    tokens = await asyncio.to_thread(estimate_tokens, asked) if is_large else estimate_tokens(asked)
    return Response(sse.encode_json({"input_tokens": tokens}), media_type="application/json")


def _arrival(context: ApiContext, request: Request, asked: ParsedMessagesRequest) -> tuple[SessionNames, ClientRequest]:
    """Return the session that the request names, and the request for the engine."""
    asked = msgspec.structs.replace(asked, model=_model(context.models, asked.model))
    named = naming.parse_session_names(request.headers, context.settings.api.session_headers, None)
    claude = claude_code.find_session_id(request.headers, asked.who)
    if not claude:
        return named, admission.build_client_request(context, request, asked, named)
    if named.ref is None and named.channel is None:
        named = claude_code.session_names(request.headers, claude)
    # It has tools of its own for the same purposes, on the machine where it runs.
    terms = msgspec.structs.replace(asked.terms, our_tools=False)
    is_auxiliary = claude_code.is_auxiliary(asked.request)
    if is_auxiliary:  # a title without a schema is better than none
        terms = msgspec.structs.replace(terms, options=_supported(context, asked.model, terms.options))
    asked = msgspec.structs.replace(asked, terms=terms)
    arrival = admission.build_client_request(context, request, asked, named)
    return named, msgspec.structs.replace(arrival, auxiliary="yes") if is_auxiliary else arrival


def _supported(context: ApiContext, model: str, options: dict[str, str]) -> dict[str, str]:
    """The options, if the model's provider takes any."""
    provider = registry.parse(context.models.resolve(model) or context.models.default).provider
    return options if provider in (NAME, *FORWARDING_PROVIDERS) else {}


def _model(models: ModelList, asked: str) -> str:
    """Return the model to use for one of Anthropic's: that one if the provider is configured, else the session's own."""
    if not asked.startswith(VENDOR_PREFIX) or asked in models.short_names:
        return asked
    return f"{NAME}:{asked}" if NAME in models.providers else SESSION_MODEL


class MessageReply:
    """Renders a turn in the format of the Messages API."""

    def __init__(self, turn: TurnStream, request_id: str, *, shows_thinking: bool) -> None:
        self.turn = turn
        self._request_id = request_id
        received = turn.received
        self._events = MessageEvents(
            received.admission.turn_id,
            received.model,
            turn.reply,
            shows_thinking=shows_thinking,
            receives_live=not received.admission.repeated,
        )

    async def whole(self) -> Response:
        await self.turn.follow_to_end(self._events.take)
        for _ in self._events.finish():
            pass
        headers = self.turn.headers() | {"x-session-seq": str(self.turn.reply.seq)}
        return Response(sse.encode_json(self._events.document()), 200, headers, media_type="application/json")

    async def pieces(self) -> AsyncGenerator[bytes, None]:
        """Generate the stream. It ends with `message_stop`, or with an `error` event."""
        turn = self.turn
        try:
            for event in self._events.begin():
                yield _format(event)
            beats = turn.received.follow(idle_seconds=turn.context.heartbeat_seconds)
            async with aclosing(beats) as items:
                async for item in items:
                    if item is None:
                        yield _format(PING)
                        continue
                    turn.reply.add(item)
                    for event in self._events.add(item):
                        yield _format(event)
            turn.raise_if_failed()
            for event in self._events.finish():
                yield _format(event)
        except HoldfastError as e:
            yield _format(error_document(translate(e), self._request_id))
        except ApiError as e:
            yield _format(error_document(e, self._request_id))
        finally:
            turn.received.close()
        turn.set_answered()


def _format(event: dict[str, object]) -> bytes:
    return sse.format_event(event, name=str(event["type"]))
