"""Formats messages for the model that writes a summary."""

from holdfast.engine.context.truncate import shorten, truncate_results
from holdfast.model.message import Message, Reasoning, Text, ToolCall, ToolResult, text_of
from holdfast.model.surrogates import repair_text

RESULT_CHARS = 1_000
"""Characters of each tool result and each call that are included."""
HINT = "recall shows them"


def format_message(message: Message) -> str:
    """A message on one line. Tool results are truncated first."""
    shown = truncate_results(message, RESULT_CHARS)
    if message.role == "tool":
        outcome = next((part.outcome for part in message.parts if isinstance(part, ToolResult)), "ok")
        return f"[{message.seq}] result ({outcome}): {repair_text(text_of(shown.parts))}"
    calls = [f"→ {part.name}({repair_text(part.arguments)})" for part in shown.parts if isinstance(part, ToolCall)]
    others = sum(not isinstance(part, Text | ToolCall | Reasoning) for part in shown.parts)
    attachments = [f"[{others} pictures or files]"] if others else []
    texts = [repair_text(shown.text), *attachments, *(shorten(call, RESULT_CHARS, HINT) for call in calls)]
    return f"[{message.seq}] {message.role}{' (cut off)' if message.partial else ''}: {' '.join(texts).strip()}"


def split(text: str, most_bytes: int) -> tuple[str, str]:
    """The longest prefix of the text within this many bytes, and the rest."""
    encoded = text.encode("utf-8", "replace")
    if len(encoded) <= most_bytes:
        return text, ""
    head = encoded[: max(0, most_bytes)].decode("utf-8", "ignore")
    return head, text[len(head) :]
