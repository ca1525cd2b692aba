"""Checks what the API sends against the types of the official Python clients.

`recorded_documents` keeps it for a check against the types of the clients for Node as well.
"""

import json
import re
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

from anthropic.types import ErrorResponse, Message, MessageTokensCount, RawMessageStreamEvent
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.conversations import Conversation, ConversationDeletedResource, ConversationItem, ConversationItemList
from openai.types.model import Model
from openai.types.responses import CompactedResponse, Response, ResponseItemList, ResponseStreamEvent
from openai.types.shared import ErrorObject
from pydantic import TypeAdapter

from tests.api.recorded_documents import record

DOCUMENTS: list[tuple[str, str, str]] = [
    ("POST", r"/v1/chat/completions", "ChatCompletion"),
    ("POST", r"/v1/responses/compact", "CompactedResponse"),
    ("POST", r"/v1/responses(/[^/]+/cancel)?", "Response"),
    ("GET", r"/v1/responses/[^/]+", "Response"),
    ("GET", r"/v1/responses/[^/]+/input_items", "ResponseItemList"),
    ("POST", r"/v1/conversations(/[^/]+)?", "Conversation"),
    ("GET", r"/v1/conversations/[^/]+", "Conversation"),
    ("DELETE", r"/v1/conversations/[^/]+", "ConversationDeletedResource"),
    ("(GET|POST)", r"/v1/conversations/[^/]+/items", "ConversationItemList"),
    ("GET", r"/v1/conversations/[^/]+/items/[^/]+", "ConversationItem"),
    ("DELETE", r"/v1/conversations/[^/]+/items/[^/]+", "Conversation"),
    ("GET", r"/v1/models/.+", "Model"),
    ("POST", r"/v1/messages", "Message"),
    ("POST", r"/v1/messages/count_tokens", "MessageTokensCount"),
]
TYPES: dict[str, Any] = {
    "ChatCompletion": ChatCompletion,
    "ChatCompletionChunk": ChatCompletionChunk,
    "CompactedResponse": CompactedResponse,
    "Conversation": Conversation,
    "ConversationDeletedResource": ConversationDeletedResource,
    "ConversationItem": ConversationItem,
    "ConversationItemList": ConversationItemList,
    "ErrorObject": ErrorObject,
    "ErrorResponse": ErrorResponse,
    "Message": Message,
    "MessageTokensCount": MessageTokensCount,
    "Model": Model,
    "RawMessageStreamEvent": RawMessageStreamEvent,
    "Response": Response,
    "ResponseItemList": ResponseItemList,
    "ResponseStreamEvent": ResponseStreamEvent,
}


@cache
def _adapter(kind: str) -> TypeAdapter[Any]:
    return TypeAdapter(TYPES[kind])


def check(kind: str, document: Any) -> None:
    """Raise ValidationError if the document does not have this type."""
    _adapter(kind).validate_python(document)
    record(kind, document)


def check_document(response: Any) -> None:
    """Raise ValidationError for a response, or for an event of its stream, that does not have the type of its route."""
    method, path = response.request.method, response.request.url.path
    content = response.headers.get("content-type", "")
    if content.startswith("text/event-stream") and path.startswith(("/v1/chat", "/v1/responses", "/v1/messages")):
        response.iter_bytes = _checking(response.iter_bytes)
    if content != "application/json":
        return
    for known, pattern, kind in DOCUMENTS:
        if re.fullmatch(known, method) and re.fullmatch(pattern, path):
            response.read()
            _check_answer(kind, response)
            return


def _check_answer(kind: str, response: Any) -> None:
    document = response.json()
    if response.status_code < 300:
        check(kind, _with_known_code(document))
    elif response.request.url.path.startswith("/v1/messages"):
        if document["error"]["type"] != "request_too_large":  # which the type of the client does not have
            check("ErrorResponse", document)
    else:
        check("ErrorObject", document["error"])


def check_event(event: Any) -> Any:
    """Return the event of a stream. Raises ValidationError if it does not have its type."""
    if not isinstance(event, dict):
        return event
    if event.get("object") == "chat.completion.chunk":
        check("ChatCompletionChunk", event)
    elif "sequence_number" in event or str(event.get("type")).startswith("response."):
        document = event.get("response")
        checked = {**event, "response": _with_known_code(document)} if isinstance(document, dict) else event
        check("ResponseStreamEvent", checked)
    elif str(event.get("type")).startswith(("message_", "content_block_")):
        check("RawMessageStreamEvent", event)
    return event


def _with_known_code(document: Any) -> Any:
    """The document with an error code of OpenAI's: ours are those of docs/api.md."""
    if document.get("object") == "response" and document.get("error") is not None:
        assert document["error"]["code"] and document["error"]["message"]
        return {**document, "error": {**document["error"], "code": "server_error"}}
    return document


def _checking(read: Callable[..., Iterator[bytes]]) -> Callable[..., Iterator[bytes]]:
    """The same bytes of a stream; each event is checked once it is complete."""

    def checked(*args: Any, **options: Any) -> Iterator[bytes]:
        rest = b""
        for piece in read(*args, **options):
            *frames, rest = (rest + piece).split(b"\n\n")
            for line in b"\n".join(frames).splitlines():
                if line.startswith(b"data: {"):
                    check_event(json.loads(line.removeprefix(b"data: ")))
            yield piece

    return checked
