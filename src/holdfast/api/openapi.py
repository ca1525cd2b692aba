"""The OpenAPI document, made of the routes and of the types that they take and answer with."""

import inspect
import re
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

import holdfast
from holdfast.api import forms, response_shapes
from holdfast.api.doors import Door
from holdfast.api.shapes import ChatRequest

Json = dict[str, Any]
Plain = tuple[str, str, Callable[..., object]]
"""A route that reads its request itself: method, path and handler."""

VERSION = "3.1.0"
REFS = "#/components/schemas/{name}"
BODIES: dict[str, type] = {"/v1/chat/completions": ChatRequest, "/v1/responses": response_shapes.Request}
"""What plain routes take, as far as a type says it; further parameters are described in docs/api.md."""
JSON, TEXT, HTML, STREAM = "application/json", "text/plain", "text/html", "text/event-stream"
OTHER_TYPES = {"/metrics": TEXT, "/docs": HTML}
STREAMED = ("/v1/chat/completions", "/v1/responses", "/v1/responses/{id}", "/v1/sessions/{ref}/events")
OPEN = ("/health",)
HEADERS = {
    "/v1/sessions/{ref}/turns": {
        "Idempotency-Key": "The same words under the same key are one turn",
        "X-Busy": "queue (the default), reject, steer or interrupt",
    },
    "/v1/sessions/{ref}/events": {
        "Last-Event-ID": "The number of the last event that was seen; counts more than after"
    },
}


def document(doors: Sequence[Door], plain: Sequence[Plain]) -> Json:
    """The whole description."""
    types = [forms.Error, *BODIES.values(), *(kind for door in doors for kind in (door.answer, door.body) if kind)]
    unique = list(dict.fromkeys(types))
    schemas, components = msgspec.json.schema_components(unique, ref_template=REFS)
    known = dict(zip(unique, schemas, strict=True))
    paths: dict[str, Json] = {}
    for door in doors:
        paths.setdefault(door.path, {})[door.method.lower()] = _native(door, known)
    for method, path, handler in plain:
        paths.setdefault(path, {})[method.lower()] = _plain(path, method, handler, known)
    about = {
        "title": "Holdfast",
        "version": holdfast.__version__,
        "description": "Sessions that survive anything, behind the APIs of OpenAI's clients and one of their own.",
    }
    keys = {"key": {"type": "http", "scheme": "bearer"}}
    return {
        "openapi": VERSION,
        "info": about,
        "security": [{"key": []}],
        "paths": paths,
        "components": {"schemas": components, "securitySchemes": keys},
    }


def _native(door: Door, known: dict[type, Json]) -> Json:
    found = _operation(door.path, door.method, door.handler)
    found["parameters"] += _query(door.query)
    answer = {} if door.answer is None else known[door.answer]
    statuses = {door.status, 200} if door.path == "/v1/sessions" else {door.status}
    found["responses"] |= {str(status): _answer(door.path, answer) for status in sorted(statuses)}
    if door.body is not None:
        required = any(field.required for field in msgspec.structs.fields(door.body))
        found["requestBody"] = {"required": required, "content": {JSON: {"schema": known[door.body]}}}
    return found


def _plain(path: str, method: str, handler: Callable[..., object], known: dict[type, Json]) -> Json:
    found = _operation(path, method, handler)
    found["responses"]["200"] = _answer(path, {"type": "object"})
    if path in BODIES:
        found["requestBody"] = {"required": True, "content": {JSON: {"schema": known[BODIES[path]]}}}
    if path in OPEN:
        found["security"] = []
    return found


def _operation(path: str, method: str, handler: Callable[..., object]) -> Json:
    """What every operation has."""
    places: list[Json] = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
        for name in re.findall(r"\{(\w+)\}", path)
    ]
    headers = HEADERS.get(path, {}) if (method, path) != ("GET", "/v1/sessions/{ref}/turns") else {}
    places += [
        {"name": name, "in": "header", "required": False, "description": about, "schema": {"type": "string"}}
        for name, about in headers.items()
    ]
    error = {"description": "What went wrong", "content": {JSON: {"schema": {"$ref": REFS.format(name="Error")}}}}
    return {
        "operationId": f"{method.lower()}{re.sub(r'[^a-z0-9]+', '_', path)}".rstrip("_"),
        "summary": (inspect.getdoc(handler) or "").partition("\n")[0],
        "parameters": places,
        "responses": {"default": error},
    }


def _query(kind: type) -> list[Json]:
    """The parameters of a query, from the type that reads them."""
    [_], components = msgspec.json.schema_components([kind], ref_template=REFS)
    schema = components[kind.__name__]
    return [
        {"name": name, "in": "query", "required": name in schema.get("required", ()), "schema": _of_text(about)}
        for name, about in schema["properties"].items()
    ]


def _of_text(schema: Json) -> Json:
    """A query holds text: to leave a parameter out is the only way to say nothing."""
    options: list[Json] = [option for option in schema.get("anyOf", ()) if option != {"type": "null"}]
    if len(options) == 1:
        return options[0]
    if "enum" in schema:
        return {"type": "string", "enum": [value for value in schema["enum"] if value is not None]}
    return {name: value for name, value in schema.items() if name != "default" or value is not None}


def _answer(path: str, schema: Json) -> Json:
    kind = OTHER_TYPES.get(path, JSON)
    content: Json = {kind: {"schema": schema if kind == JSON else {"type": "string"}}}
    if path in STREAMED:
        content[STREAM] = {"schema": {"type": "string"}}
    return {"description": "Done", "content": content}
