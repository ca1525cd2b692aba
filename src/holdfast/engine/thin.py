"""The result of a tool, shown in part: its beginning and its end, and where the rest can be read."""

import msgspec

from holdfast.model.message import Content, Message, Part, Text, ToolResult

HEAD = 2 / 3
"""How much of what is shown is the beginning; most programs say what matters first, and say at the end how it went."""
SPARE = 160
"""A text that is longer than allowed by no more than this is left alone: the note would be as long."""


def thin(message: Message, chars: int) -> Message:
    """The message with at most about so many characters of each result. Always the same for the same message."""
    parts = tuple(_thin_result(part, message.seq, chars) for part in message.parts)
    return message if parts == message.parts else msgspec.structs.replace(message, parts=parts)


def _thin_result(part: Part, seq: int, chars: int) -> Part:
    if not isinstance(part, ToolResult):
        return part
    thinned = tuple(_thin_content(inner, seq, chars) for inner in part.parts)
    return msgspec.structs.replace(part, parts=thinned)


def _thin_content(part: Content, seq: int, chars: int) -> Content:
    if not isinstance(part, Text):
        return Text("[a picture or file was shown here]")
    return Text(shortened(part.text, chars, f"recall(from_seq={seq}, to_seq={seq}) shows them"))


def shortened(text: str, chars: int, hint: str) -> str:
    """The beginning and the end of a text that is longer than that; between them how much is missing, and the hint."""
    if len(text) <= chars + SPARE:
        return text
    head = int(chars * HEAD)
    tail = chars - head
    left_out = len(text) - chars
    return f"{text[:head]}\n[… {left_out:,} characters left out; {hint} …]\n{text[len(text) - tail :]}"
