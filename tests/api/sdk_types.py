"""Checks what the API sends against the types of the official Python client."""

import re
from functools import cache
from typing import Any

from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.conversations import Conversation, ConversationDeletedResource, ConversationItem, ConversationItemList
from openai.types.model import Model
from openai.types.responses import CompactedResponse, Response, ResponseItemList, ResponseStreamEvent
from pydantic import TypeAdapter

DOCUMENTS: list[tuple[str, str, Any]] = [
    ("POST", r"/v1/chat/completions", ChatCompletion),
    ("POST", r"/v1/responses/compact", CompactedResponse),
    ("POST", r"/v1/responses(/[^/]+/cancel)?", Response),
    ("GET", r"/v1/responses/[^/]+", Response),
    ("GET", r"/v1/responses/[^/]+/input_items", ResponseItemList),
    ("POST", r"/v1/conversations(/[^/]+)?", Conversation),
    ("GET", r"/v1/conversations/[^/]+", Conversation),
    ("DELETE", r"/v1/conversations/[^/]+", ConversationDeletedResource),
    ("(GET|POST)", r"/v1/conversations/[^/]+/items", ConversationItemList),
    ("GET", r"/v1/conversations/[^/]+/items/[^/]+", ConversationItem),
    ("DELETE", r"/v1/conversations/[^/]+/items/[^/]+", Conversation),
    ("GET", r"/v1/models/.+", Model),
]


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def check_document(response: Any) -> None:
    """Raise ValidationError for a successful response that does not have the type of its route."""
    if response.status_code >= 300 or response.headers.get("content-type") != "application/json":
        return
    method, path = response.request.method, response.request.url.path
    for known, pattern, kind in DOCUMENTS:
        if re.fullmatch(known, method) and re.fullmatch(pattern, path):
            response.read()
            _adapter(kind).validate_python(_with_known_code(response.json()))
            return


def check_event(event: Any) -> Any:
    """Return the event of a stream. Raises ValidationError if it does not have its type."""
    if isinstance(event, dict) and event.get("object") == "chat.completion.chunk":
        _adapter(ChatCompletionChunk).validate_python(event)
    elif isinstance(event, dict) and ("sequence_number" in event or str(event.get("type")).startswith("response.")):
        document = event.get("response")
        checked = {**event, "response": _with_known_code(document)} if isinstance(document, dict) else event
        _adapter(ResponseStreamEvent).validate_python(checked)
    return event


def _with_known_code(document: Any) -> Any:
    """The document with an error code of OpenAI's: ours are those of docs/api.md."""
    if document.get("object") == "response" and document.get("error") is not None:
        assert document["error"]["code"] and document["error"]["message"]
        return {**document, "error": {**document["error"], "code": "server_error"}}
    return document
