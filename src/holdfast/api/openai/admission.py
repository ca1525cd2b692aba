"""Hand a request to the engine: its caller, session, model and options. Shared by all routes that start turns."""

from collections.abc import Sequence

import msgspec
from starlette.requests import HTTPConnection

from holdfast.api import headers
from holdfast.api.auxiliary import LIKELY, LOOKED_AT, SYSTEM, TEMPLATES
from holdfast.api.context import ApiContext
from holdfast.api.errors import ApiError
from holdfast.api.headers import SessionNames
from holdfast.api.openai import chat_request
from holdfast.api.openai.chat_request import ParsedRequest
from holdfast.engine.admission.admit import caller_id
from holdfast.engine.admission.client_request import Auxiliary, ClientRequest
from holdfast.engine.admission.history_match import ClientMessage
from holdfast.engine.submission import SubmittedTurn
from holdfast.model.errors import Invalid, NotFound
from holdfast.model.event import RequestOptions
from holdfast.model.ids import SESSION, TURN
from holdfast.model.message import text_of
from holdfast.providers import registry


def build_client_request(
    context: ApiContext,
    request: HTTPConnection,
    asked: ParsedRequest,
    named: SessionNames,
    *,
    aside: Auxiliary | None = None,
) -> ClientRequest:
    """Build the engine's request. Raises ApiError for an unknown model or an unsupported parameter.

    `aside` says whether the request is an auxiliary one, if the route knows.
    """
    model = context.models.resolve(asked.model)
    chat_request.check_provider_options(
        registry.parse(model or context.models.default).provider, asked.terms, asked.spelled
    )
    ids = context.engine.services.ids
    caller = caller_id(asked.who)
    aside = aside or _auxiliary(request, asked)
    return ClientRequest(
        turn_id=ids.make(TURN),
        new_id=ids.make(SESSION),
        messages=asked.messages,
        history=asked.history,
        caller=caller,
        ref=named.ref,
        channel=named.channel,
        system=asked.system,
        model=model,
        default_model=context.models.default,
        permission_mode=context.engine.services.mode,
        terms=_terms(context, request, asked.terms, caller=caller, plain=aside == "yes"),
        auxiliary=aside,
        mode=headers.parse_busy_mode(request.headers),
        key=headers.parse_idempotency_key(request.headers),
        request=asked.digest,
        retried=headers.is_retry(request.headers),
    )


def _auxiliary(request: HTTPConnection, asked: ParsedRequest) -> Auxiliary:
    """Whether the request is an auxiliary one: the header decides, else its text."""
    stated = headers.parse_switch(request.headers, headers.SIDE_HEADER)
    if stated is not None:
        return "yes" if stated else "no"
    return classify(asked.system or "", asked.messages)


def classify(system: str, messages: Sequence[ClientMessage]) -> Auxiliary:
    """Whether a request with this text is an auxiliary one."""
    last = next((text_of(one.parts).lstrip() for one in reversed(messages) if one.role == "user"), "")
    for template in TEMPLATES:
        text, find = (system, template.pattern.search) if template.place == SYSTEM else (last, template.pattern.match)
        if find(text, 0, LOOKED_AT) is not None and template.contains in text:
            return "yes"
    answered = any(one.role == "assistant" for one in messages)
    return "likely" if not answered and LIKELY.search(system, 0, LOOKED_AT) is not None else "no"


def _terms(
    context: ApiContext, request: HTTPConnection, terms: RequestOptions, *, caller: str, plain: bool
) -> RequestOptions:
    """The options with the client; without the server's tools if the settings, the header or a `plain` request say so."""
    wanted = headers.parse_switch(request.headers, headers.TOOLS_HEADER)
    offered = context.settings.api.server_tools and (not plain if wanted is None else wanted)
    client = headers.client_id(request.headers, caller)
    return msgspec.structs.replace(terms, client=client, our_tools=terms.our_tools and offered)


async def admit_request(
    context: ApiContext, arriving: ClientRequest, *, kept: bool = False, param: str = "messages"
) -> SubmittedTurn:
    """Admit the request: from then on it is durable. Close what is returned.

    With `kept`, text is streamed only once it is durable; `param` is where the client puts its messages.
    """
    try:
        return await context.engine.submit(arriving, stream="durable" if kept else "live")
    except NotFound as e:
        raise ApiError(404, "session_not_found", str(e)) from e
    except Invalid as e:
        raise ApiError(400, "invalid_request", str(e), param) from e
