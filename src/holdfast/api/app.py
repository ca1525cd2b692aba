"""The routes, and what stands before all of them."""

from collections.abc import Awaitable, Callable
from functools import cache
from typing import Any

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route, Router
from starlette.types import ASGIApp, Receive, Scope, Send

from holdfast.api import chat, health, listing, native, responses
from holdfast.api.auth import Lock
from holdfast.api.errors import Refusal
from holdfast.api.gate import PAGES, Gate, Rules
from holdfast.api.house import House, of
from holdfast.api.page import page

Handler = Callable[[Request], Awaitable[Response]]
REQUEST = "req-"


async def models(request: Request) -> Response:
    """The models that can be asked for."""
    house = of(request)
    return Response(msgspec.json.encode(listing.document(house.listing)), media_type="application/json")


async def openapi(request: Request) -> Response:
    """This description, for programs."""
    return Response(msgspec.json.encode(described()), media_type="application/json")


async def docs(request: Request) -> Response:
    """This description, for people."""
    return Response(page(described()), media_type="text/html")


ROUTES: list[tuple[str, str, Handler]] = [
    ("POST", "/v1/chat/completions", chat.complete),
    ("POST", "/v1/responses", responses.create),
    ("GET", "/v1/responses/{id}", responses.retrieve),
    ("DELETE", "/v1/responses/{id}", responses.delete),
    ("POST", "/v1/responses/{id}/cancel", responses.cancel),
    ("GET", "/v1/responses/{id}/input_items", responses.input_items),
    ("GET", "/v1/models", models),
    ("GET", "/health", health.health),
    ("GET", "/ready", health.ready),
    ("GET", "/openapi.json", openapi),
    ("GET", "/docs", docs),
]
"""Routes that read their requests themselves; those of `native.DOORS` come beside them."""


@cache
def described() -> dict[str, Any]:
    """The OpenAPI document, made once."""
    from holdfast.api.openapi import document

    return document(native.DOORS, ROUTES)


def create(house: House, key: str, pages: ASGIApp | None = None, *, any_host: bool = False) -> ASGIApp:
    """The whole API as one application, and behind the same gate the pages for people.

    `any_host` is for a socket that no browser can reach: whoever stands before it has looked at the host.
    """
    api = house.settings.api
    hosts = ("*",) if any_host else (api.host, *api.hosts)
    rules = Rules(Lock(key), hosts=hosts, origins=api.cors_origins, max_body=api.max_body_mb * 2**20)
    ground = house.engine.ground
    return Gate(
        Rooms(house, pages),
        rules,
        new_id=lambda: ground.ids.make(REQUEST),
        monotonic=ground.clock.monotonic,
        count=house.tally.count,
    )


class Rooms:
    """Leads a request to its route. What a route raises passes through: the gate answers it."""

    def __init__(self, house: House, pages: ASGIApp | None = None) -> None:
        self.state = house
        self._pages = pages
        routes = [Route(path, _by_method(ways), methods=list(ways)) for path, ways in _paths().items()]
        self._router = Router(routes, redirect_slashes=False)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._pages is not None and PAGES.fullmatch(scope["path"]):
            await self._pages(scope, receive, send)
            return
        scope["app"] = self
        try:
            await self._router(scope, receive, send)
        except HTTPException as e:
            raise _unrouted(scope, e) from None


def _paths() -> dict[str, dict[str, Handler]]:
    """What can be asked of each path, by method."""
    found: dict[str, dict[str, Handler]] = {}
    for method, path, handler in [*ROUTES, *((door.method, door.path, door.enter) for door in native.DOORS)]:
        found.setdefault(path, {})[method] = handler
    return found


def _by_method(ways: dict[str, Handler]) -> Handler:
    """One handler for a path. What can be got can also be asked about with HEAD."""

    async def enter(request: Request) -> Response:
        return await ways["GET" if request.method == "HEAD" else request.method](request)

    return enter


def _unrouted(scope: Scope, error: HTTPException) -> Refusal:
    """A path or a method that is not there."""
    if error.status_code != 405:
        return Refusal(error.status_code, "not_found", f"there is nothing at {scope['path']}")
    refusal = Refusal(405, "method_not_allowed", f"{scope['path']} cannot be asked with {scope['method']}")
    refusal.headers |= dict(error.headers or {})
    return refusal
