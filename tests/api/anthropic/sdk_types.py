"""Compares documents with the types of Anthropic's SDK: every field is there, and no other."""

import json
import types
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import httpx
from anthropic.types import (
    ErrorResponse,
    Message,
    RawContentBlockDeltaEvent,
    RawContentBlockStartEvent,
    RawContentBlockStopEvent,
    RawMessageDeltaEvent,
    RawMessageStartEvent,
    RawMessageStopEvent,
)
from pydantic import BaseModel, TypeAdapter

EVENTS: dict[str, type[BaseModel]] = {
    "message_start": RawMessageStartEvent,
    "content_block_start": RawContentBlockStartEvent,
    "content_block_delta": RawContentBlockDeltaEvent,
    "content_block_stop": RawContentBlockStopEvent,
    "message_delta": RawMessageDeltaEvent,
    "message_stop": RawMessageStopEvent,
    "error": ErrorResponse,
}


def check_message(response: httpx.Response) -> dict[str, Any]:
    assert response.status_code == 200, response.text
    found: dict[str, Any] = response.json()
    check(Message, found)
    return found


def check_error(response: httpx.Response, status: int = 400, kind: str = "invalid_request_error") -> str:
    """Check the error and return its message."""
    assert response.status_code == status, response.text
    found = response.json()
    check(ErrorResponse if kind != "request_too_large" else dict, found)
    assert found["error"]["type"] == kind
    assert response.headers["request-id"] == found["request_id"] == response.headers["x-request-id"]
    return str(found["error"]["message"])


def check_stream(body: str) -> list[dict[str, Any]]:
    """Check each event of a stream and return those that are not pings."""
    found = []
    for frame in body.removesuffix("\n\n").split("\n\n"):
        name, data = frame.split("\n")
        event = json.loads(data.removeprefix("data: "))
        assert name == f"event: {event['type']}"
        if event == {"type": "ping"}:
            continue
        check(EVENTS[event["type"]], event)
        found.append(event)
    return found


def check(kind: Any, value: Any, where: str = "$") -> None:
    """Fail unless the value has exactly the fields of the type, all of their types."""
    members = _members(kind)
    models = [one for one in members if isinstance(one, type) and issubclass(one, BaseModel)]
    lists = [one for one in members if get_origin(one) is list]
    if isinstance(value, dict) and models:
        model = models[0] if len(models) == 1 else next(one for one in models if _has_tag(one, value.get("type")))
        assert set(value) == set(model.model_fields), f"{where}: {sorted(set(value) ^ set(model.model_fields))}"
        for name, field in model.model_fields.items():
            check(field.annotation, value[name], f"{where}.{name}")
    elif isinstance(value, list) and lists:
        for n, item in enumerate(value):
            check(get_args(lists[0])[0], item, f"{where}[{n}]")
    else:
        TypeAdapter(kind).validate_python(value, strict=True)


def _members(kind: Any) -> list[Any]:
    """The types of a union, without annotations."""
    if get_origin(kind) is Annotated:
        return _members(get_args(kind)[0])
    if get_origin(kind) in (Union, types.UnionType):
        return [member for one in get_args(kind) for member in _members(one)]
    return [kind]


def _has_tag(model: type[BaseModel], tag: object) -> bool:
    field = model.model_fields.get("type")
    return field is not None and get_origin(field.annotation) is Literal and tag in get_args(field.annotation)
