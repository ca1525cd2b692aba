"""Types of the responses of Anthropic's API, for the OpenAPI document. Tests check responses against the vendor's own types."""

from typing import Literal

from holdfast.interop.serialization import Document, Json


class MessageResponse(Document, frozen=True):
    id: str
    type: Literal["message"]
    role: Literal["assistant"]
    model: str
    content: list[Json]
    stop_reason: Literal["end_turn", "max_tokens", "tool_use", "refusal"]
    stop_sequence: None
    usage: Json


class TokenCountResponse(Document, frozen=True):
    input_tokens: int


class AnthropicErrorBody(Document, frozen=True):
    type: str
    message: str


class AnthropicErrorResponse(Document, frozen=True):
    type: Literal["error"]
    error: AnthropicErrorBody
    request_id: str
