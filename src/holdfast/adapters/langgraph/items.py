"""The items of a LangGraph thread: serialized values, and the facts that name them.

An item is `["put", values, fact]`, `["writes", values, fact]`, `["values", values]` or `["removed", fact]`. A value is
named by a reference, a number made of its event and its place there. A list is named by its elements: parts of a list in
an earlier fact, and references. So a step stores only what is new, and a longer list shares its beginning with the shorter
one. Earlier releases stored each value as an item of its own (`blob`), and lists as trees (`list`); both are still read.
"""

import hashlib
import json
from binascii import a2b_base64, b2a_base64
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Protocol

import msgspec

from holdfast.adapters.items import decode_item
from holdfast.model.event import ItemAdded
from holdfast.model.message import Role

ADAPTER = "langgraph"
PLACES = 1_000
"""More than the values of one event: a reference is this times the number of the event, plus the place."""
ROLES: dict[object, Role] = {"human": "user", "ai": "assistant", "tool": "tool", "system": "user"}
Typed = tuple[str, bytes]
Slice = tuple[int, int]
Parts = list[int | Slice]
"""Elements by reference, and slices of the list that this one is made from."""
ListRef = tuple[int | None, Parts]
"""The event with the list that this one is made from, under the same channel, and the parts."""


class TypedSerializer(Protocol):
    def dumps_typed(self, obj: Any) -> Typed: ...
    def loads_typed(self, data: Typed) -> Any: ...


class StoredPut(msgspec.Struct, frozen=True):
    """A checkpoint without its values and versions."""

    ns: str
    id: str
    parent: str | None
    versions: "dict[str, Any]"
    body: list[str]
    metadata: list[str]
    values: dict[str, int | ListRef]


class StoredTaskWrites(msgspec.Struct, frozen=True):
    """The writes of a task: index, channel and value."""

    ns: str
    id: str
    task: str
    path: str
    writes: list[tuple[int, str, int | ListRef]]


class RemovedCheckpoints(msgspec.Struct, frozen=True):
    removed: list[tuple[str, str]]


class PackedValue(msgspec.Struct, array_like=True, gc=False):
    """What `pack` made."""

    type: str
    before: bytes
    after: bytes | None = None

    def unpack(self, text: str) -> Typed:
        return self.type, self.before if self.after is None else b"".join((self.before, text.encode(), self.after))


class PackedValues(msgspec.Struct, array_like=True, gc=False):
    """The beginning of an item with values."""

    kind: str
    values: list[PackedValue]


_values = msgspec.json.Decoder(list[PackedValues])


class OldCheckpoint(msgspec.Struct, frozen=True):
    """A checkpoint of an earlier release, whose values are the numbers of their events. Its body has the versions."""

    ns: str
    id: str
    parent: str | None
    versions: "dict[str, Any]"
    body: list[str]
    metadata: list[str]
    values: dict[str, int]


class OldWrite(msgspec.Struct, frozen=True):
    task: str
    path: str
    index: int
    channel: str
    value: int


class OldWrites(msgspec.Struct, frozen=True):
    ns: str
    id: str
    writes: list[OldWrite]


class EncodedValue(msgspec.Struct, frozen=True):
    """A serialized value, with its content hash, and for a message who said it and its text."""

    key: bytes
    packed: list[str]
    role: Role | None = None
    text: str = ""


def encode_value(serde: TypedSerializer, value: Any) -> EncodedValue:
    type_, data = serde.dumps_typed(value)
    role = ROLES.get(getattr(value, "type", None)) if hasattr(value, "content") else None
    text = _text_of(value.content) if role else ""
    return EncodedValue(digest(type_, data), pack((type_, data), text), role if text else None, text)


def encode_fact(kind: str, values: Sequence[EncodedValue], fact: Any = None) -> ItemAdded:
    """The event of some values, at most one of them a message, and of a fact."""
    message = next((one for one in values if one.role), None)
    item = [kind, [one.packed for one in values], *([] if fact is None else [fact])]
    role, text = (message.role, message.text) if message else (None, "")
    return ItemAdded(adapter=ADAPTER, item=dump(item), role=role, text=text)


def encode_removal(removed: Sequence[tuple[str, str]]) -> ItemAdded:
    return ItemAdded(adapter=ADAPTER, item=dump(["removed", RemovedCheckpoints(list(removed))]))


def values_of(item: list[Any], text: str) -> list[Typed]:
    """The serialized values of an item, in the order of their places. The text is that of its event."""
    match item[0]:
        case "put" | "writes" | "values" if isinstance(item[1], list):
            return [unpack(one, text) for one in item[1]]
        case "blob":
            return [unpack(item[1:])]
        case _:
            return []


def values_of_many(events: Sequence[ItemAdded]) -> list[list[Typed]]:
    """Like `values_of` for many items, several times as fast if all of them have values."""
    with suppress(msgspec.MsgspecError, UnicodeEncodeError):
        items = _values.decode(f"[{','.join([event.item for event in events])}]")
        return [[one.unpack(event.text) for one in item.values] for item, event in zip(items, events, strict=True)]
    return [values_of(decode_item(event), event.text) for event in events]


def pack(typed: Typed, text: str = "") -> list[str]:
    """The type and the bytes. A text that the event has anyway is left out: what is before it and after it remains."""
    type_, data = typed
    if text:
        with suppress(UnicodeEncodeError):  # half a surrogate pair has no bytes
            before, found, after = data.partition(text.encode())
            if found:
                return [type_, _armor(before), _armor(after)]
    return [type_, _armor(data)]


def unpack(packed: Sequence[str], text: str = "") -> Typed:
    data = a2b_base64(packed[1])
    if len(packed) == 3:
        data += text.encode() + a2b_base64(packed[2])
    return packed[0], data


def digest(type_: str, data: bytes) -> bytes:
    return hashlib.sha256(type_.encode() + b"\n" + data).digest()


def dump(item: Any) -> str:
    try:
        return msgspec.json.encode(item).decode()
    except UnicodeEncodeError:  # half a surrogate pair
        return json.dumps(msgspec.to_builtins(item), separators=(",", ":"))


def move_item(event: ItemAdded, moved: Mapping[int, int]) -> ItemAdded:
    """The item for another thread, in which the events have other numbers."""
    item = json.loads(event.item)
    key = event.key
    match item[0], item[1:]:
        case "list", [depth, seqs]:
            item[2] = [moved[seq] for seq in seqs]
            key = hashlib.sha256(f"l\n{depth}\n{','.join(map(str, item[2]))}".encode()).hexdigest()[:48]
        case "checkpoint", [fact]:
            fact["values"] = {channel: moved[seq] for channel, seq in fact["values"].items()}
        case "writes", [dict() as fact]:
            fact["writes"] = [{**one, "value": moved[one["value"]]} for one in fact["writes"]]
        case "put", [_, fact]:
            fact["values"] = {channel: _moved(one, moved) for channel, one in fact["values"].items()}
        case "writes", [_, fact]:
            fact["writes"] = [[index, channel, _moved(one, moved)] for index, channel, one in fact["writes"]]
    return msgspec.structs.replace(event, item=dump(item), key=key)


def _moved(value: Any, moved: Mapping[int, int]) -> Any:
    if isinstance(value, int):
        return moved[value // PLACES] * PLACES + value % PLACES
    base, parts = value
    return [base and moved[base], [_moved(one, moved) if isinstance(one, int) else one for one in parts]]


def _armor(data: bytes) -> str:
    return b2a_base64(data, newline=False).decode("ascii")


def _text_of(content: Any) -> str:
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "\n".join(one if isinstance(one, str) else str(one.get("text", "")) for one in content if one)
    return ""
