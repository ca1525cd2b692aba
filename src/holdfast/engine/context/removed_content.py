"""Removes the content of messages, and keeps their calls and results, which belong together. Pure."""

import re
from collections.abc import Iterable

import msgspec

from holdfast.model.message import Message, Outcome, Text, ToolCall, ToolResult

REFUSED = "The model's provider refused the content of this result, and it was removed{}"
REMOVED = "The content of this result was removed from the conversation."


def refusal_notice(reason: str, refused: Iterable[Message]) -> str:
    """What takes the place of content that the provider refused, with its reason unless that may contain the content."""
    is_quoted = any(_quotes(reason, message) for message in refused)
    return REFUSED.format("." if is_quoted else f": {reason}")


def remove_content(
    messages: Iterable[Message], gone: set[int], notice: str, outcome: Outcome | None = None
) -> list[Message]:
    """The messages without these, except for calls, and with the notice in place of their results."""
    return [
        left
        for message in messages
        if (left := _without_content(message, notice, outcome) if message.seq in gone else message) is not None
    ]


def _without_content(message: Message, notice: str, outcome: Outcome | None) -> Message | None:
    """What must stay of a removed message: each call, and its result with a notice in place of the content."""
    parts = tuple(
        ToolResult(part.call_id, (Text(notice),), outcome or part.outcome) if isinstance(part, ToolResult) else part
        for part in message.parts
        if isinstance(part, ToolResult | ToolCall)
    )
    return msgspec.structs.replace(message, parts=parts) if parts else None


def _quotes(reason: str, message: Message) -> bool:
    """Whether a reason may contain refused content: it must not return to the context. A shared word is enough."""
    return any(word in message.text for word in re.findall(r"\w{4,}", reason))
