"""The routes, and what stands before all of them."""

from collections.abc import Awaitable, Callable

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route, Router
from starlette.types import ASGIApp, Receive, Scope, Send

from holdfast.api import chat, health, listing, responses
from holdfast.api.auth import Lock
from holdfast.api.errors import Refusal
from holdfast.api.gate import Gate, Rules
from holdfast.api.house import House, of

Handler = Callable[[Request], Awaitable[Response]]
REQUEST = "req-"


async def models(request: Request) -> Response:
    """The models that can be asked for."""
    house = of(request)
    return Response(msgspec.json.encode(listing.document(house.listing)), media_type="application/json")


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
]


def create(house: House, key: str) -> ASGIApp:
    """The whole API as one application."""
    api = house.settings.api
    rules = Rules(Lock(key), hosts=(api.host, *api.hosts), origins=api.cors_origins, max_body=api.max_body_mb * 2**20)
    ground = house.engine.ground
    return Gate(Rooms(house), rules, new_id=lambda: ground.ids.make(REQUEST), monotonic=ground.clock.monotonic)


class Rooms:
    """Leads a request to its route. What a route raises passes through: the gate answers it."""

    def __init__(self, house: House) -> None:
        self.state = house
        self._router = Router([Route(path, handler, methods=[method]) for method, path, handler in ROUTES])

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope["app"] = self
        try:
            await self._router(scope, receive, send)
        except HTTPException as e:
            raise _unrouted(scope, e) from None


def _unrouted(scope: Scope, error: HTTPException) -> Refusal:
    """A path or a method that is not there."""
    if error.status_code != 405:
        return Refusal(error.status_code, "not_found", f"there is nothing at {scope['path']}")
    refusal = Refusal(405, "method_not_allowed", f"{scope['path']} cannot be asked with {scope['method']}")
    refusal.headers |= dict(error.headers or {})
    return refusal
