"""Messages as the author of a summary reads them."""

from holdfast.engine.thin import shortened, thin
from holdfast.model.message import Message, Reasoning, Text, ToolCall, ToolResult, text_of

RESULT_CHARS = 1_000
"""Of each tool's result, and of each call, that the author is shown."""
HINT = "recall shows them"


def tell(message: Message) -> str:
    """A message on its line. Results of tools are thinned before anything is summed up."""
    shown = thin(message, RESULT_CHARS)
    if message.role == "tool":
        outcome = next((part.outcome for part in message.parts if isinstance(part, ToolResult)), "ok")
        return f"[{message.seq}] result ({outcome}): {clean(text_of(shown.parts))}"
    calls = [f"→ {part.name}({clean(part.arguments)})" for part in shown.parts if isinstance(part, ToolCall)]
    others = sum(not isinstance(part, Text | ToolCall | Reasoning) for part in shown.parts)
    pictures = [f"[{others} pictures or files]"] if others else []
    words = [clean(shown.text), *pictures, *(shortened(call, RESULT_CHARS, HINT) for call in calls)]
    return f"[{message.seq}] {message.role}{' (cut off)' if message.partial else ''}: {' '.join(words).strip()}"


def clean(text: str) -> str:
    """Without lone surrogates, which no provider takes."""
    return text.encode("utf-8", "replace").decode("utf-8")


def split(text: str, most_bytes: int) -> tuple[str, str]:
    """The longest beginning of the text that takes no more than so many bytes, and the rest."""
    encoded = text.encode("utf-8", "replace")
    if len(encoded) <= most_bytes:
        return text, ""
    head = encoded[: max(0, most_bytes)].decode("utf-8", "ignore")
    return head, text[len(head) :]
