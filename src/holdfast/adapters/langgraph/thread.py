"""The items of a LangGraph thread, and the state that follows from them.

Four kinds of items: a *blob* is a serialized value; a *list* names the events of its elements, or of other lists; a
*checkpoint* and the *writes* of a task name the events of their values. Blobs and lists have their content hash as key, so
each is stored once. A list is a tree of lists, so that a longer list shares all but the last branch with the shorter one.
"""

import base64
import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import msgspec

from holdfast.adapters.log_fold import KeyIndex
from holdfast.model.errors import Corrupt
from holdfast.model.event import ItemAdded
from holdfast.model.message import Role

ADAPTER = "langgraph"
FAN_OUT = 64
"""Elements of one list item: an appended element writes one such item for each level of the tree."""
ROLES: dict[object, Role] = {"human": "user", "ai": "assistant", "tool": "tool", "system": "user"}
Typed = tuple[str, bytes]


class TypedSerializer(Protocol):
    def dumps_typed(self, obj: Any) -> Typed: ...
    def loads_typed(self, data: Typed) -> Any: ...


class StoredCheckpoint(msgspec.Struct, frozen=True):
    """A checkpoint without its values, whose events are in `values`."""

    ns: str
    id: str
    parent: str | None
    versions: "dict[str, Any]"
    body: list[str]
    metadata: list[str]
    values: dict[str, int]


class StoredWrite(msgspec.Struct, frozen=True):
    task: str
    path: str
    index: int
    channel: str
    value: int


class StoredWrites(msgspec.Struct, frozen=True):
    ns: str
    id: str
    writes: list[StoredWrite]


class RemovedCheckpoints(msgspec.Struct, frozen=True):
    removed: list[tuple[str, str]]


Kind = StoredCheckpoint | StoredWrites | RemovedCheckpoints
KINDS: dict[str, type[Kind]] = {"checkpoint": StoredCheckpoint, "writes": StoredWrites, "removed": RemovedCheckpoints}


class ThreadState(KeyIndex):
    """Which checkpoints and writes a thread has."""

    def __init__(self) -> None:
        super().__init__()
        self.checkpoints: dict[tuple[str, str], StoredCheckpoint] = {}
        self.writes: dict[tuple[str, str], dict[tuple[str, int], StoredWrite]] = {}
        self.versions: dict[tuple[str, str, object], int] = {}
        """The event of each version of a channel's value."""

    def clear(self) -> None:
        super().clear()
        self.checkpoints.clear()
        self.writes.clear()
        self.versions.clear()

    def apply(self, seq: int, event: ItemAdded) -> None:
        super().apply(seq, event)
        match read_fact(event):
            case StoredCheckpoint() as found:
                self.checkpoints[found.ns, found.id] = found
                for channel, value in found.values.items():
                    self.versions[found.ns, channel, found.versions.get(channel)] = value
            case StoredWrites() as found:
                known = self.writes.setdefault((found.ns, found.id), {})
                for write in found.writes:
                    if write.index < 0 or (write.task, write.index) not in known:
                        known[write.task, write.index] = write
            case RemovedCheckpoints(removed):
                for place in removed:
                    self.checkpoints.pop(place, None)
                    self.writes.pop(place, None)

    def newest_first(self, ns: str | None = None) -> list[StoredCheckpoint]:
        found = [one for one in self.checkpoints.values() if ns is None or one.ns == ns]
        return sorted(found, key=lambda one: one.id, reverse=True)

    def ordered_writes(self, found: StoredCheckpoint) -> list[StoredWrite]:
        writes = self.writes.get((found.ns, found.id), {}).values()
        return sorted(writes, key=lambda one: (one.path, one.task, one.index))


class ItemWriter:
    """Collects the items of one write, numbered after the last event of the thread."""

    def __init__(self, state: ThreadState, last_seq: int, serde: TypedSerializer) -> None:
        self.events: list[ItemAdded] = []
        self._state = state
        self._last = last_seq
        self._serde = serde
        self._fresh: dict[str, int] = {}

    def add_value(self, value: Any) -> int:
        """Add what is not stored yet; returns the event of the value."""
        if type(value) is not list:
            return self._add_blob(value)
        seqs, depth = [self._add_blob(one) for one in value], 0
        while len(seqs) > FAN_OUT:
            parts = range(0, len(seqs), FAN_OUT)
            seqs, depth = [self._add_list(seqs[part : part + FAN_OUT], depth) for part in parts], depth + 1
        return self._add_list(seqs, depth)

    def add_fact(self, kind: str, fact: Kind) -> None:
        text = json.dumps([kind, msgspec.to_builtins(fact)], ensure_ascii=False, separators=(",", ":"))
        self._append(ItemAdded(adapter=ADAPTER, item=text))

    def _add_blob(self, value: Any) -> int:
        typed = self._serde.dumps_typed(value)
        key = digest("b", *pack(typed))
        role = ROLES.get(getattr(value, "type", None)) if hasattr(value, "content") else None
        text = _text_of(value.content) if role else ""
        return self._add(key, ["blob", *pack(typed)], role if text else None, text)

    def _add_list(self, seqs: Sequence[int], depth: int) -> int:
        return self._add(digest("l", str(depth), ",".join(map(str, seqs))), ["list", depth, seqs])

    def _add(self, key: str, item: Any, role: Role | None = None, text: str = "") -> int:
        seq = self._state.seqs.get(key) or self._fresh.get(key)
        if seq is None:
            body = json.dumps(item, ensure_ascii=False, separators=(",", ":"))
            seq = self._append(ItemAdded(adapter=ADAPTER, item=body, role=role, key=key, text=text))
            self._fresh[key] = seq
        return seq

    def _append(self, event: ItemAdded) -> int:
        self.events.append(event)
        return self._last + len(self.events)


class ItemLoader:
    """Reads values by their events, each verified by its content hash."""

    def __init__(self, read: Callable[[int], ItemAdded], serde: TypedSerializer) -> None:
        self._read = read
        self._serde = serde

    def load(self, seq: int) -> Any:
        kind, *rest = self._item(seq)
        if kind == "blob":
            return self._serde.loads_typed(unpack(rest))
        return [self._serde.loads_typed(unpack(self._item(one)[1:])) for one in self._elements(rest)]

    def _elements(self, stored: list[Any]) -> Iterator[int]:
        depth, seqs = stored
        for seq in seqs:
            if depth:
                yield from self._elements(self._item(seq)[1:])
            else:
                yield seq

    def _item(self, seq: int) -> list[Any]:
        event = self._read(seq)
        item: list[Any] = msgspec.json.decode(event.item)
        words = ("b", *item[1:]) if item[0] == "blob" else ("l", str(item[1]), ",".join(map(str, item[2])))
        if digest(*words) != event.key:
            raise Corrupt(f"event {seq} of a {ADAPTER} thread was changed: its content hash does not match")
        return item


def read_fact(event: ItemAdded) -> Kind | None:
    """The checkpoint, writes or removal of an item; None for a blob or list."""
    if event.key:
        return None
    kind, fact = msgspec.json.decode(event.item)
    return msgspec.convert(fact, KINDS[kind])


def move_item(event: ItemAdded, moved: Mapping[int, int]) -> ItemAdded:
    """The item for another thread, in which the events have other numbers."""
    item = json.loads(event.item)
    if item[0] == "list":
        item[2] = [moved[seq] for seq in item[2]]
        key = digest("l", str(item[1]), ",".join(map(str, item[2])))
        return msgspec.structs.replace(event, item=_dump(item), key=key)
    if item[0] == "checkpoint":
        item[1]["values"] = {channel: moved[seq] for channel, seq in item[1]["values"].items()}
    elif item[0] == "writes":
        for write in item[1]["writes"]:
            write["value"] = moved[write["value"]]
    return msgspec.structs.replace(event, item=_dump(item))


def _dump(item: Any) -> str:
    return json.dumps(item, ensure_ascii=False, separators=(",", ":"))


def pack(typed: Typed) -> list[str]:
    return [typed[0], base64.b64encode(typed[1]).decode("ascii")]


def unpack(packed: Sequence[str]) -> Typed:
    return packed[0], base64.b64decode(packed[1])


def digest(*words: str) -> str:
    return hashlib.sha256("\n".join(words).encode()).hexdigest()[:48]


def _text_of(content: Any) -> str:
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "\n".join(one if isinstance(one, str) else str(one.get("text", "")) for one in content if one)
    return ""
