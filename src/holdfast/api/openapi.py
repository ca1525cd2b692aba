"""Build the OpenAPI document from the routes and their request and response types."""

import inspect
import re
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

import holdfast
from holdfast.api.anthropic import response_models as anthropic_models
from holdfast.api.anthropic.request import VERSION, VERSION_HEADER
from holdfast.api.anthropic.request_models import CountTokensRequest, MessagesRequest
from holdfast.api.native import files, response_models
from holdfast.api.native.endpoint import Endpoint
from holdfast.api.openai.chat_request import ChatRequest
from holdfast.api.openai.conversations import routes as conversations
from holdfast.api.openai.responses import compaction, request
from holdfast.model.image_format import EXTENSIONS

Json = dict[str, Any]
PlainRoute = tuple[str, str, Callable[..., object]]
"""A route whose handler parses its own request: method, path and handler."""

OPENAPI_VERSION = "3.1.0"
REFS = "#/components/schemas/{name}"
BODIES: dict[str, type] = {
    "/v1/chat/completions": ChatRequest,
    "/v1/responses": request.ResponsesRequest,
    "/v1/messages": MessagesRequest,
    "/v1/messages/count_tokens": CountTokensRequest,
    "/v1/responses/compact": compaction.CompactResponsesRequest,
    "/v1/conversations": conversations.NewConversationRequest,
    "/v1/conversations/{id}": conversations.ConversationUpdateRequest,
    "/v1/conversations/{id}/items": conversations.NewItemsRequest,
}
"""Bodies of plain routes as far as they are typed; docs/api.md describes further parameters."""
JSON, TEXT, HTML, STREAM = "application/json", "text/plain", "text/html", "text/event-stream"
OTHER_TYPES: dict[str, tuple[str, ...]] = {
    "/metrics": (TEXT,),
    "/docs": (HTML,),
    "/v1/usage.csv": ("text/csv",),
    "/v1/sessions/{ref}/files/{name}": (files.OTHER, *EXTENSIONS),
    "/v1/ai-sdk/chat": (STREAM,),
    "/v1/ai-sdk/chat/{chat}/stream": (STREAM,),
}
EMPTY: dict[str, str] = {"/v1/ai-sdk/chat/{chat}/stream": "No message of the assistant is being written"}
"""What it means that a route responds with 204."""
ANTHROPIC_RESPONSES: dict[str, type] = {
    "/v1/messages": anthropic_models.MessageResponse,
    "/v1/messages/count_tokens": anthropic_models.TokenCountResponse,
}
"""Responses of the routes whose errors have Anthropic's format."""
STREAMED = ("/v1/chat/completions", "/v1/messages", "/v1/responses", "/v1/responses/{id}", "/v1/sessions/{ref}/events")
PUBLIC_PATHS = ("/health",)
VERSION_PARAMETER: Json = {
    "name": VERSION_HEADER,
    "in": "header",
    "required": True,
    "schema": {"type": "string", "pattern": f"^{VERSION.pattern}$"},
}
WEBSOCKET = ("GET", "/v1/responses")
HEADERS = {
    "/v1/sessions/{ref}/turns": {
        "Idempotency-Key": "Requests with the same input and key start one turn",
        "X-Busy": "queue (the default), reject, steer or interrupt",
    },
    "/v1/sessions/{ref}/events": {"Last-Event-ID": "Sequence number of the last event received; overrides after"},
}


def build_openapi(endpoints: Sequence[Endpoint], plain: Sequence[PlainRoute]) -> Json:
    """Build the whole document."""
    types = [
        response_models.ErrorResponse,
        anthropic_models.AnthropicErrorResponse,
        *ANTHROPIC_RESPONSES.values(),
        *BODIES.values(),
        *(kind for endpoint in endpoints for kind in (endpoint.response, endpoint.body) if kind),
    ]
    unique = list(dict.fromkeys(types))
    schemas, components = msgspec.json.schema_components(unique, ref_template=REFS)
    known = dict(zip(unique, schemas, strict=True))
    paths: dict[str, Json] = {}
    for endpoint in endpoints:
        paths.setdefault(endpoint.path, {})[endpoint.method.lower()] = _native(endpoint, known)
    for method, path, handler in plain:
        paths.setdefault(path, {})[method.lower()] = _plain(path, method, handler, known)
    about = {
        "title": "Holdfast",
        "version": holdfast.__version__,
        "description": "Durable sessions with the OpenAI Chat Completions and Responses APIs, the Anthropic Messages API and a native API.",
    }
    keys = {
        "key": {"type": "http", "scheme": "bearer"},
        "anthropic_key": {"type": "apiKey", "in": "header", "name": "x-api-key"},
    }
    return {
        "openapi": OPENAPI_VERSION,
        "info": about,
        "security": [{"key": []}, {"anthropic_key": []}],
        "paths": paths,
        "components": {"schemas": components, "securitySchemes": keys},
    }


def _native(endpoint: Endpoint, known: dict[type, Json]) -> Json:
    found = _operation(endpoint.path, endpoint.method, endpoint.handler)
    found["parameters"] += _query(endpoint.query)
    answer = {} if endpoint.response is None else known[endpoint.response]
    statuses = {endpoint.status, endpoint.repeat_status or endpoint.status}
    found["responses"] |= {str(status): _answer(endpoint.path, answer) for status in sorted(statuses)}
    if endpoint.path in EMPTY:
        found["responses"]["204"] = {"description": EMPTY[endpoint.path], "content": {}}
    if endpoint.body is not None:
        required = any(field.required for field in msgspec.structs.fields(endpoint.body))
        found["requestBody"] = {"required": required, "content": {JSON: {"schema": known[endpoint.body]}}}
    return found


def _plain(path: str, method: str, handler: Callable[..., object], known: dict[type, Json]) -> Json:
    found = _operation(path, method, handler)
    if (method, path) == WEBSOCKET:
        found["responses"]["101"] = {"description": "Switching Protocols", "content": {}}
        return found
    found["responses"]["200"] = _answer(path, {"type": "object"})
    if path in ANTHROPIC_RESPONSES:
        found["responses"]["200"] = _answer(path, known[ANTHROPIC_RESPONSES[path]])
        found["responses"]["default"]["content"][JSON]["schema"] = known[anthropic_models.AnthropicErrorResponse]
        found["parameters"].append(VERSION_PARAMETER)
    if path in BODIES and method == "POST":
        found["requestBody"] = {"required": True, "content": {JSON: {"schema": known[BODIES[path]]}}}
    if path in PUBLIC_PATHS:
        found["security"] = []
    return found


def _operation(path: str, method: str, handler: Callable[..., object]) -> Json:
    """Build the fields that every operation has."""
    parameters: list[Json] = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
        for name in re.findall(r"\{(\w+)\}", path)
    ]
    headers = HEADERS.get(path, {}) if (method, path) != ("GET", "/v1/sessions/{ref}/turns") else {}
    parameters += [
        {"name": name, "in": "header", "required": False, "description": about, "schema": {"type": "string"}}
        for name, about in headers.items()
    ]
    error = {
        "description": "Error",
        "content": {JSON: {"schema": {"$ref": REFS.format(name=response_models.ErrorResponse.__name__)}}},
    }
    return {
        "operationId": f"{method.lower()}{re.sub(r'[^a-z0-9]+', '_', path)}".rstrip("_"),
        "summary": (inspect.getdoc(handler) or "").partition("\n")[0],
        "parameters": parameters,
        "responses": {"default": error},
    }


def _query(kind: type) -> list[Json]:
    """Describe the query parameters of a request type."""
    [_], components = msgspec.json.schema_components([kind], ref_template=REFS)
    schema = components[kind.__name__]
    return [
        {"name": name, "in": "query", "required": name in schema.get("required", ()), "schema": _without_null(about)}
        for name, about in schema["properties"].items()
    ]


def _without_null(schema: Json) -> Json:
    """Remove null from the schema: a query parameter is text or absent."""
    options: list[Json] = [option for option in schema.get("anyOf", ()) if option != {"type": "null"}]
    if len(options) == 1:
        return options[0]
    if "enum" in schema:
        return {"type": "string", "enum": [value for value in schema["enum"] if value is not None]}
    return {name: value for name, value in schema.items() if name != "default" or value is not None}


def _answer(path: str, schema: Json) -> Json:
    kinds = OTHER_TYPES.get(path, (JSON,))
    content: Json = {kind: {"schema": schema if kind == JSON else {"type": "string"}} for kind in kinds}
    if path in STREAMED:
        content[STREAM] = {"schema": {"type": "string"}}
    return {"description": "Success", "content": content}
