"""The API as one ASGI application: routes behind the request middleware."""

import re
from collections.abc import Awaitable, Callable
from functools import cache
from typing import Any

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route, Router
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.websockets import WebSocket

from holdfast.api import health
from holdfast.api import models as listing
from holdfast.api.ai_sdk import routes as ai_sdk
from holdfast.api.anthropic import messages
from holdfast.api.anthropic.request import VERSION_HEADER
from holdfast.api.context import ApiContext, get_context
from holdfast.api.docs_page import render_docs_page
from holdfast.api.errors import ApiError
from holdfast.api.native import routes as native
from holdfast.api.openai import chat
from holdfast.api.openai.conversations import routes as conversations
from holdfast.api.openai.responses import compaction, creation, websocket
from holdfast.api.openai.responses import routes as responses
from holdfast.api.transport.auth import KeyCheck
from holdfast.api.transport.middleware import DASHBOARD_PATHS, AccessRules, RequestMiddleware

Handler = Callable[[Request], Awaitable[Response]]
REQUEST_ID_PREFIX = "req-"
WEBSOCKET_PATH = "/v1/responses"
SLASHED = re.compile(r"\{(model|chat)\}")
"""Path parameters that may contain slashes."""


async def list_models(request: Request) -> Response:
    """List the models that requests may name."""
    models = get_context(request).models
    is_anthropic = VERSION_HEADER in request.headers
    found = listing.anthropic_model_list(models) if is_anthropic else listing.model_list_document(models)
    return Response(msgspec.json.encode(found), media_type="application/json")


async def get_model(request: Request) -> Response:
    """Return a model that requests may name."""
    name = request.path_params["model"]
    get_context(request).models.resolve(name)
    return Response(msgspec.json.encode(listing.model_document(name)), media_type="application/json")


async def openapi(request: Request) -> Response:
    """Return this description as OpenAPI JSON."""
    return Response(msgspec.json.encode(openapi_document()), media_type="application/json")


async def docs(request: Request) -> Response:
    """Return this description as an HTML page."""
    return Response(render_docs_page(openapi_document()), media_type="text/html")


ROUTES: list[tuple[str, str, Handler]] = [
    ("POST", "/v1/chat/completions", chat.create_completion),
    ("POST", "/v1/responses", creation.create),
    ("POST", "/v1/responses/compact", compaction.compact),
    ("GET", WEBSOCKET_PATH, websocket.require_upgrade),
    ("GET", "/v1/responses/{id}", responses.retrieve),
    ("DELETE", "/v1/responses/{id}", responses.delete),
    ("POST", "/v1/responses/{id}/cancel", responses.cancel),
    ("GET", "/v1/responses/{id}/input_items", responses.input_items),
    ("POST", "/v1/messages", messages.create_message),
    ("POST", "/v1/messages/count_tokens", messages.count_tokens),
    ("POST", "/v1/conversations", conversations.create),
    ("GET", "/v1/conversations/{id}", conversations.retrieve),
    ("POST", "/v1/conversations/{id}", conversations.update),
    ("DELETE", "/v1/conversations/{id}", conversations.delete),
    ("GET", "/v1/conversations/{id}/items", conversations.read_items),
    ("POST", "/v1/conversations/{id}/items", conversations.add_items),
    ("GET", "/v1/conversations/{id}/items/{item_id}", conversations.retrieve_item),
    ("DELETE", "/v1/conversations/{id}/items/{item_id}", conversations.delete_item),
    ("GET", "/v1/models", list_models),
    ("GET", "/v1/models/{model}", get_model),
    ("GET", "/health", health.health),
    ("GET", "/ready", health.ready),
    ("GET", "/openapi.json", openapi),
    ("GET", "/docs", docs),
]
"""Routes whose handlers parse their own requests."""
ENDPOINTS = (*native.ENDPOINTS, *ai_sdk.ENDPOINTS)
"""Routes that describe their requests and responses."""


@cache
def openapi_document() -> dict[str, Any]:
    """Build the OpenAPI document once."""
    from holdfast.api.openapi import build_openapi

    return build_openapi(ENDPOINTS, ROUTES)


def create_app(context: ApiContext, key: str, pages: ASGIApp | None = None, *, any_host: bool = False) -> ASGIApp:
    """Create the API as one application, with the dashboard behind the same middleware.

    `any_host` is for a socket that no browser can reach: the proxy in front of it has checked the host.
    """
    api = context.settings.api
    hosts = ("*",) if any_host else (api.host, *api.hosts)
    rules = AccessRules(KeyCheck(key), hosts=hosts, origins=api.cors_origins, max_body=api.max_body_mb * 2**20)
    services = context.engine.services
    return RequestMiddleware(
        ApiRouter(context, pages),
        rules,
        new_id=lambda: services.ids.make(REQUEST_ID_PREFIX),
        monotonic=services.clock.monotonic,
        count=context.counter.count,
    )


class ApiRouter:
    """Routes a request. Exceptions of a route pass through; the middleware turns them into responses."""

    def __init__(self, context: ApiContext, pages: ASGIApp | None = None) -> None:
        self.state = context
        self._pages = pages
        routes = [
            Route(SLASHED.sub(r"{\1:path}", path), _by_method(handlers), methods=list(handlers))
            for path, handlers in _paths().items()
        ]
        self._router = Router(routes, redirect_slashes=False)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await self._open_websocket(scope, receive, send)
            return
        if self._pages is not None and DASHBOARD_PATHS.fullmatch(scope["path"]):
            await self._pages(scope, receive, send)
            return
        scope["app"] = self
        try:
            await self._router(scope, receive, send)
        except HTTPException as e:
            raise _unrouted(scope, e) from None

    async def _open_websocket(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] != WEBSOCKET_PATH:
            raise ApiError(404, "not_found", f"no WebSocket at {scope['path']}; there is one at {WEBSOCKET_PATH}")
        scope["app"] = self
        await websocket.serve(WebSocket(scope, receive, send))


def _paths() -> dict[str, dict[str, Handler]]:
    """Map each path to its handlers by method."""
    found: dict[str, dict[str, Handler]] = {}
    for method, path, handler in [*ROUTES, *((one.method, one.path, one.handle) for one in ENDPOINTS)]:
        found.setdefault(path, {})[method] = handler
    return found


def _by_method(handlers: dict[str, Handler]) -> Handler:
    """Make one handler for a path. HEAD runs the handler of GET."""

    async def handle(request: Request) -> Response:
        return await handlers["GET" if request.method == "HEAD" else request.method](request)

    return handle


def _unrouted(scope: Scope, error: HTTPException) -> ApiError:
    """Translate an unknown path or method into an API error."""
    if error.status_code != 405:
        return ApiError(error.status_code, "not_found", f"no route {scope['path']}")
    refused = ApiError(405, "method_not_allowed", f"{scope['method']} is not allowed on {scope['path']}")
    refused.headers |= dict(error.headers or {})
    return refused
