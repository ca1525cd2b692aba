"""Messages of users, models and tools, as parts, and sequences of them that can be long."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Literal, overload

import msgspec

Outcome = Literal["ok", "failed", "denied", "unknown"]
ATTACHED = "\n\n[attached "
"""How the text of an attachment begins."""


class Text(msgspec.Struct, frozen=True, tag="text"):
    text: str


class Image(msgspec.Struct, frozen=True, tag="image", omit_defaults=True):
    """An image by reference: an http(s) or data URL, or `file:` and a name in the session's files."""

    url: str
    media_type: str = ""
    detail: str = ""
    saved_as: str = ""
    """The name of a copy in the session's files. It is sent to the user with the reply."""


class File(msgspec.Struct, frozen=True, tag="file", omit_defaults=True):
    """A file by reference, as for `Image`."""

    url: str
    name: str = ""
    media_type: str = ""


class Reasoning(msgspec.Struct, frozen=True, tag="reasoning", omit_defaults=True):
    """The model's reasoning. `opaque` is the provider's own data, kept unchanged and sent back only to that provider."""

    text: str = ""
    provider: str = ""
    opaque: dict[str, str] = {}


class ToolCall(msgspec.Struct, frozen=True, tag="tool_call", omit_defaults=True):
    """A call requested by the model. `arguments` is the JSON text as the model wrote it, valid or not."""

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
    """One message of the log; `seq` is the number of its event and `at` its time."""

    seq: int
    role: Role
    parts: tuple[Part, ...]
    at: int
    partial: bool = False
    turn_id: str = ""
    name: str = ""
    """The name of the user, if the client gave one."""

    @property
    def text(self) -> str:
        return text_of(self.parts)

    @property
    def tool_calls(self) -> tuple[ToolCall, ...]:
        return tuple(part for part in self.parts if isinstance(part, ToolCall))


def text_of(parts: tuple[Part, ...]) -> str:
    """The visible text of the parts, including tool results."""
    texts = []
    for part in parts:
        if isinstance(part, Text):
            texts.append(part.text)
        elif isinstance(part, ToolResult):
            texts.append(text_of(part.parts))
    return "".join(texts)


def is_attached(part: Part) -> bool:
    """Whether a part is the header of an attachment, or its text; only for parts after the first."""
    return isinstance(part, Text) and part.text.startswith(ATTACHED)


def typed_text(parts: tuple[Part, ...]) -> str:
    """The text that the user typed, without attachments. The first part always counts as typed."""
    return text_of(tuple(part for number, part in enumerate(parts) if not (number and is_attached(part))))


def text_bytes(parts: Iterable[Part]) -> int:
    """The approximate bytes of a message's texts, including embedded images."""
    total = 0
    for part in parts:
        match part:
            case Text() | Reasoning():
                total += len(part.text)
            case Image() | File():
                total += len(part.url)
            case ToolCall():
                total += len(part.arguments)
            case ToolResult():
                total += text_bytes(part.parts)
    return total


class MessageSnapshot(Sequence[Message]):
    """The first messages of a list, not copied. Its owner only appends to the list, and replaces it for any other change."""

    __slots__ = ("_count", "_source")

    def __init__(self, source: list[Message], count: int | None = None) -> None:
        self._source = source
        self._count = len(source) if count is None else count

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Message]:
        return islice(self._source, self._count)

    @overload
    def __getitem__(self, index: int) -> Message: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Message, ...]: ...
    def __getitem__(self, index: int | slice) -> Message | tuple[Message, ...]:
        if isinstance(index, slice):
            start, stop, step = index.indices(self._count)
            return tuple(self._source[start:stop] if step == 1 else tuple(self)[index])
        return self._source[range(self._count)[index]]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence):
            return NotImplemented
        return len(self) == len(other) and (_is_same_list(self, other) or all(map(_is_equal, self, other)))

    __hash__ = None  # type: ignore[assignment] # as a list

    def __repr__(self) -> str:
        return f"MessageSnapshot({list(self)!r})"

    def first(self, count: int) -> "MessageSnapshot":
        return MessageSnapshot(self._source, count)


def take_first(messages: Sequence[Message], count: int) -> Sequence[Message]:
    """The first messages. Of a snapshot, nothing is copied."""
    return messages.first(count) if isinstance(messages, MessageSnapshot) else messages[:count]


def starts_with(messages: Sequence[Message], first: Sequence[Message]) -> bool:
    """Whether these are the first messages. Of two snapshots of one list, nothing is compared."""
    return len(messages) >= len(first) and (_is_same_list(messages, first) or all(map(_is_equal, messages, first)))


def _is_same_list(one: object, other: object) -> bool:
    return isinstance(one, MessageSnapshot) and isinstance(other, MessageSnapshot) and one._source is other._source


def _is_equal(one: object, other: object) -> bool:
    return one is other or one == other
