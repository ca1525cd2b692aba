"""How many tokens something takes, guessed before a model has counted it; rather too many than too few.

Three bytes of UTF-8 are taken for a token. In English that is a third more than models count, in Cyrillic about right,
and a letter of Chinese or Japanese, which has three bytes, is a token. Dense data such as base64 can take more: then
the provider refuses the context, and we learn (`engine/room.py`).
"""

from collections.abc import Iterable

import msgspec

from holdfast.model.asking import ToolSpec
from holdfast.model.message import File, Image, Message, Part, Reasoning, Text, ToolCall, ToolResult

BYTES_PER_TOKEN = 3
PER_MESSAGE = 6
"""What every vendor adds around a message, and a little more."""
PER_CALL = 12
PER_TOOL = 8
IMAGE = 1_600
"""The most that common vendors count for a picture."""
FILE = 2_000
"""A few pages by reference; one that is sent along counts by its length, if that is more."""


def of_text(text: str) -> int:
    size = len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
    return -(-size // BYTES_PER_TOKEN)


def of_message(message: Message) -> int:
    return PER_MESSAGE + sum(map(_of_part, message.parts))


def of_messages(messages: Iterable[Message]) -> int:
    return sum(map(of_message, messages))


def of_frame(system: str, tools: Iterable[ToolSpec]) -> int:
    """What goes with every request: the system text and the tools."""
    specs = (len(msgspec.json.encode(tool)) for tool in tools)
    return PER_MESSAGE + of_text(system) + sum(PER_TOOL - (-spec // BYTES_PER_TOKEN) for spec in specs)


def _of_part(part: Part) -> int:
    match part:
        case Text():
            return of_text(part.text)
        case Image():
            return IMAGE
        case File():
            return max(FILE, len(part.url) // (BYTES_PER_TOKEN + 1) if part.url.startswith("data:") else 0)
        case Reasoning():
            return of_text(part.text) + sum(map(of_text, part.opaque.values()))
        case ToolCall():
            return PER_CALL + of_text(part.name) + of_text(part.arguments)
        case ToolResult():
            return PER_CALL + sum(map(_of_part, part.parts))
