"""What a person or the model said, or a tool returned, as parts."""

from typing import Literal

import msgspec

Outcome = Literal["ok", "failed", "denied", "unknown"]


class Text(msgspec.Struct, frozen=True, tag="text"):
    text: str


class Image(msgspec.Struct, frozen=True, tag="image", omit_defaults=True):
    """A picture by reference: an http(s) or data URL, or `file:` and a name in the session's files."""

    url: str
    media_type: str = ""
    detail: str = ""


class File(msgspec.Struct, frozen=True, tag="file", omit_defaults=True):
    """A file by reference, as for `Image`."""

    url: str
    name: str = ""
    media_type: str = ""


class Reasoning(msgspec.Struct, frozen=True, tag="reasoning", omit_defaults=True):
    """The model's thinking. `opaque` is the provider's own data, kept word for word and sent back to it alone."""

    text: str = ""
    provider: str = ""
    opaque: dict[str, str] = {}


class ToolCall(msgspec.Struct, frozen=True, tag="tool_call", omit_defaults=True):
    """What the model asked for. `arguments` is the JSON text as the model wrote it, valid or not."""

    id: str
    name: str
    arguments: str = "{}"


class ToolResult(msgspec.Struct, frozen=True, tag="tool_result", omit_defaults=True):
    call_id: str
    parts: tuple[Text | Image | File, ...] = ()
    outcome: Outcome = "ok"


Content = Text | Image | File
Part = Text | Image | File | Reasoning | ToolCall | ToolResult
Role = Literal["user", "assistant", "tool"]


class Message(msgspec.Struct, frozen=True, omit_defaults=True):
    """One message as it stands in the log; `seq` is its event's number and `at` its instant."""

    seq: int
    role: Role
    parts: tuple[Part, ...]
    at: int
    partial: bool = False
    turn_id: str = ""

    @property
    def text(self) -> str:
        return text_of(self.parts)

    @property
    def tool_calls(self) -> tuple[ToolCall, ...]:
        return tuple(part for part in self.parts if isinstance(part, ToolCall))


def text_of(parts: tuple[Part, ...]) -> str:
    """The visible words of some parts, those of tool results included."""
    texts = []
    for part in parts:
        if isinstance(part, Text):
            texts.append(part.text)
        elif isinstance(part, ToolResult):
            texts.append(text_of(part.parts))
    return "".join(texts)
