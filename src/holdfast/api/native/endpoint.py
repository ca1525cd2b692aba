"""A native route as data: its request and response types and its handler. The OpenAPI document is built from these."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from holdfast.api.context import ApiContext, get_context
from holdfast.api.errors import ApiError
from holdfast.api.native import request_models
from holdfast.api.openai import chat_request
from holdfast.interop.serialization import Json, dump
from holdfast.model.errors import NotFound
from holdfast.model.session import Session
from holdfast.store.database import Transaction
from holdfast.store.repos import sessions


@dataclass(frozen=True, slots=True)
class EndpointCall:
    """A parsed request. `query` and `body` have the types that the endpoint names."""

    context: ApiContext
    request: Request
    query: Any
    body: Any

    def path_param(self, name: str) -> str:
        """Return a path parameter. Raises ApiError if it contains a NUL character, which no database can store."""
        value = str(self.request.path_params[name])
        if "\0" in value:
            raise ApiError(404, "not_found", f"{name} {value!r} not found")
        return value


@dataclass(frozen=True, slots=True)
class EndpointReply:
    """A response with its own status or headers."""

    document: msgspec.Struct | Json
    status: int
    headers: dict[str, str]


Handler = Callable[[EndpointCall], Awaitable[msgspec.Struct | Json | EndpointReply | Response]]


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One method of one path. The first line of the handler's docstring says what it does."""

    method: str
    path: str
    handler: Handler
    response: type | None = None
    """None if the response is not JSON."""
    query: type[request_models.RequestModel] = request_models.NoParameters
    body: type[request_models.RequestModel] | None = None
    status: int = 200
    repeat_status: int | None = None
    """The status of a request that finds what it would create, where it differs."""
    large: bool = False
    """Whether the response may be so large that it is encoded in a thread."""

    async def handle(self, request: Request) -> Response:
        """Parse the request, call the handler and build the response."""
        query = _query(request, self.query)
        body = None if self.method == "GET" else _body(await request.body(), self.body or request_models.NoParameters)
        result = await self.handler(EndpointCall(get_context(request), request, query, body))
        if isinstance(result, Response):
            return result
        reply = result if isinstance(result, EndpointReply) else EndpointReply(result, self.status, {})
        text = await asyncio.to_thread(dump, reply.document) if self.large else dump(reply.document)
        return Response(text, reply.status, reply.headers, media_type="application/json")


def _query(request: Request, kind: type[request_models.RequestModel]) -> request_models.RequestModel:
    given = dict(request.query_params)
    _refuse_unknown(given, kind)
    for name, value in given.items():
        if len(request.query_params.getlist(name)) > 1:
            raise ApiError(400, "invalid_value", f"{name} is given more than once", name)
        if "\0" in value:
            raise ApiError(400, "invalid_value", f"{name} contains a NUL character", name)
    return chat_request.convert(given, kind, strict=False)


def _body(body: bytes, kind: type[request_models.RequestModel]) -> request_models.RequestModel:
    """Parse the body; an empty one means no parameters."""
    given = chat_request.decode(body) if body.strip() else {}
    _refuse_unknown(given, kind)
    return chat_request.convert(given, kind)


def _refuse_unknown(given: dict[str, Any], kind: type[request_models.RequestModel]) -> None:
    known = [field.encode_name for field in msgspec.structs.fields(kind)]
    for name in given:
        if name not in known:
            reason = f"unknown parameter {name}; known: {', '.join(known) or 'none'}"
            raise ApiError(400, "unsupported_parameter", reason, name)


async def load_session(call: EndpointCall, *, trashed: bool = True) -> Session:
    """Load the session that the path names: by id, id prefix, alias or title. Raises ApiError."""
    return await call.context.database.read(resolve_session, str(call.request.path_params["ref"]), trashed=trashed)


def resolve_session(tx: Transaction, ref: str, *, trashed: bool = True) -> Session:
    """Resolve as `sessions.resolve` does; raises ApiError if the session does not exist."""
    try:
        return sessions.resolve(tx, ref, trashed=trashed).session
    except NotFound as e:
        raise ApiError(404, "session_not_found", str(e)) from e
