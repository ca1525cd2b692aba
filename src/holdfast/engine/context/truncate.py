"""Truncates tool results: keeps the beginning and the end, and says how to read the rest."""

import msgspec

from holdfast.model.message import Content, Message, Part, Text, ToolResult

HEAD_SHARE = 2 / 3
"""The share of the kept text that comes from the beginning. Most programs print what matters first and the result last."""
MIN_OMITTED = 160
"""A text that exceeds the limit by less than this stays whole: the note would be as long."""


def truncate_results(message: Message, chars: int) -> Message:
    """The message with each result truncated to about this many characters. Deterministic."""
    parts = tuple(_truncate_result(part, message.seq, chars) for part in message.parts)
    return message if parts == message.parts else msgspec.structs.replace(message, parts=parts)


def _truncate_result(part: Part, seq: int, chars: int) -> Part:
    if not isinstance(part, ToolResult):
        return part
    truncated = tuple(_truncate_content(inner, seq, chars) for inner in part.parts)
    return msgspec.structs.replace(part, parts=truncated)


def _truncate_content(part: Content, seq: int, chars: int) -> Content:
    if not isinstance(part, Text):
        return Text("[a picture or file was shown here]")
    return Text(shorten(part.text, chars, f"recall(from_seq={seq}, to_seq={seq}) shows them"))


def shorten(text: str, chars: int, hint: str) -> str:
    """The beginning and the end of a longer text; between them, how much is missing and the hint."""
    if len(text) <= chars + MIN_OMITTED:
        return text
    return omit_middle(text, chars, int(chars * HEAD_SHARE), f"; {hint}")


def omit_middle(text: str, chars: int, head: int, hint: str = "") -> str:
    """This many characters of a longer text, `head` of them from its beginning and the others from its end."""
    omitted = len(text) - chars
    return f"{text[:head]}\n[… {omitted:,} characters left out{hint} …]\n{text[head + omitted :]}"
