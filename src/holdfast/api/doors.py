"""A native route as a fact: what it takes, what it answers with, and who sees to it. The OpenAPI document is made of these."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from holdfast.api import asked, shapes
from holdfast.api.errors import Refusal
from holdfast.api.house import House, of
from holdfast.interop.shapes import dump
from holdfast.model.errors import NotFound
from holdfast.model.session import Session
from holdfast.store import sessions
from holdfast.store.database import Transaction


@dataclass(frozen=True, slots=True)
class Call:
    """A request at its door. `query` and `body` are of the types that the door names."""

    house: House
    request: Request
    query: Any
    body: Any

    def place(self, name: str) -> str:
        """A piece of the path. Raises a Refusal for what no database could hold."""
        value = str(self.request.path_params[name])
        if "\0" in value:
            raise Refusal(404, "not_found", f"there is no {name} {value!r}")
        return value


@dataclass(frozen=True, slots=True)
class Said:
    """An answer with a status or headers of its own."""

    document: dict[str, Any]
    status: int
    headers: dict[str, str]


Handler = Callable[[Call], Awaitable[dict[str, Any] | Said | Response]]


@dataclass(frozen=True, slots=True)
class Door:
    """One method of one path. The first line of the handler's docstring says what it does."""

    method: str
    path: str
    handler: Handler
    answer: type | None = None
    """None for an answer that is no JSON of ours."""
    query: type[asked.Asked] = asked.Nothing
    body: type[asked.Asked] | None = None
    status: int = 200
    large: bool = False
    """Whether the answer may be so long that it is written beside the event loop."""

    async def enter(self, request: Request) -> Response:
        """Read what was asked, have it seen to, and answer."""
        query = _query(request, self.query)
        body = None if self.method == "GET" else _body(await request.body(), self.body or asked.Nothing)
        answer = await self.handler(Call(of(request), request, query, body))
        if isinstance(answer, Response):
            return answer
        said = answer if isinstance(answer, Said) else Said(answer, self.status, {})
        text = await asyncio.to_thread(dump, said.document) if self.large else dump(said.document)
        return Response(text, said.status, said.headers, media_type="application/json")


def _query(request: Request, kind: type[asked.Asked]) -> asked.Asked:
    given = dict(request.query_params)
    _refuse_unknown(given, kind)
    for name, value in given.items():
        if len(request.query_params.getlist(name)) > 1:
            raise Refusal(400, "invalid_value", f"{name} is given more than once", name)
        if "\0" in value:
            raise Refusal(400, "invalid_value", f"{name} holds a character that nothing can hold", name)
    return shapes.convert(given, kind, strict=False)


def _body(body: bytes, kind: type[asked.Asked]) -> asked.Asked:
    """The body; an empty one asks for nothing in particular."""
    given = shapes.decode(body) if body.strip() else {}
    _refuse_unknown(given, kind)
    return shapes.convert(given, kind)


def _refuse_unknown(given: dict[str, Any], kind: type[asked.Asked]) -> None:
    known = [field.encode_name for field in msgspec.structs.fields(kind)]
    for name in given:
        if name not in known:
            told = f"the parameter {name} is not known here; there are {', '.join(known) or 'none'}"
            raise Refusal(400, "unsupported_parameter", told, name)


async def session_of(call: Call, *, trashed: bool = True) -> Session:
    """The session that the path names: by id, the beginning of an id, another name or its title. Raises a Refusal."""
    return await call.house.database.read(find, str(call.request.path_params["ref"]), trashed=trashed)


def find(tx: Transaction, ref: str, *, trashed: bool = True) -> Session:
    """As `sessions.resolve`, with the answer that clients know for what is not there."""
    try:
        return sessions.resolve(tx, ref, trashed=trashed).session
    except NotFound as e:
        raise Refusal(404, "session_not_found", str(e)) from e
