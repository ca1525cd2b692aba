"""What follows from the items of a LangGraph thread: its checkpoints, their writes, and where each value is stored."""

import heapq
from bisect import bisect_left, insort
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from holdfast.adapters.items import decode_item
from holdfast.adapters.langgraph.items import (
    PLACES,
    ListRef,
    OldCheckpoint,
    OldWrites,
    Parts,
    RemovedCheckpoints,
    StoredPut,
    StoredTaskWrites,
    digest,
    values_of,
)
from holdfast.adapters.log_fold import LogFold
from holdfast.model.errors import Unsupported
from holdfast.model.event import ItemAdded


class StoredList:
    """A list by the references of its elements: parts of another list, and references of its own."""

    __slots__ = ("base", "length", "parts", "seq")

    def __init__(self, seq: int, parts: Parts, base: "StoredList | None" = None) -> None:
        self.seq = seq
        """The event whose fact has it."""
        self.parts = parts
        self.base = base
        self.length = sum(1 if isinstance(part, int) else part[1] - part[0] for part in parts)

    def refs(self) -> list[int]:
        """The references of all elements, made from the first list on which this one is based."""
        chain: list[StoredList] = []
        one: StoredList | None = self
        while one is not None:
            chain.append(one)
            one = one.base
        found: list[int] = []
        for step in reversed(chain):
            found = step._apply(found)
        return found

    def _apply(self, before: list[int]) -> list[int]:
        kept, *added = self.parts or [(0, 0)]
        if isinstance(kept, tuple) and kept[0] == 0 and all(isinstance(one, int) for one in added):
            del before[kept[1] :]  # the usual step: a longer list, made in place
            before += added  # type: ignore[arg-type] # all are references
            return before
        found: list[int] = []
        for part in self.parts:
            found += [part] if isinstance(part, int) else before[part[0] : part[1]]
        return found


Place = int | StoredList
"""Where a value is stored: its reference, or those of its elements."""


class StoredCheckpoint(msgspec.Struct, frozen=True):
    ns: str
    id: str
    parent: str | None
    versions: dict[str, Any]
    body: list[str]
    metadata: list[str]
    values: dict[str, Any]


class StoredWrite(msgspec.Struct, frozen=True):
    task: str
    path: str
    index: int
    channel: str
    value: Any


class ThreadState(LogFold):
    """Which checkpoints, writes and values a thread has."""

    def __init__(self) -> None:
        super().__init__()
        self.checkpoints: dict[tuple[str, str], StoredCheckpoint] = {}
        self._ids: dict[str, list[str]] = {}
        """The ids of the checkpoints of each namespace, in order."""
        self.writes: dict[tuple[str, str], dict[tuple[str, int], StoredWrite]] = {}
        self.refs: dict[bytes, int] = {}
        """The reference of each value by its content hash."""
        self.versions: dict[tuple[str, str, object], Place] = {}
        """The value of each version of a channel."""
        self.newest_lists: dict[tuple[str, str], StoredList] = {}
        """By namespace and channel."""
        self.lists: dict[tuple[int, str], StoredList] = {}
        """By event and channel."""
        self._trees: dict[int, tuple[int, list[int]]] = {}

    def clear(self) -> None:
        for found in (
            self.checkpoints,
            self._ids,
            self.writes,
            self.refs,
            self.versions,
            self.newest_lists,
            self.lists,
        ):
            found.clear()
        self._trees.clear()

    def apply(self, seq: int, event: ItemAdded) -> None:
        item = decode_item(event)
        for at, typed in enumerate(values_of(item, event.text)):
            self.refs.setdefault(digest(*typed), seq * PLACES + at)
        kind, *rest = item
        match kind, rest:
            case "put", [_, fact]:
                self._add_put(seq, msgspec.convert(fact, StoredPut))
            case "writes", [_, fact]:
                self._add_writes(seq, msgspec.convert(fact, StoredTaskWrites))
            case "removed", [fact]:
                for place in msgspec.convert(fact, RemovedCheckpoints).removed:
                    self._remove(*place)
            case "list", [depth, seqs]:
                self._trees[seq] = depth, seqs
            case "checkpoint", [fact]:
                self._add_old_checkpoint(seq, msgspec.convert(fact, OldCheckpoint))
            case "writes", [fact]:
                self._add_old_writes(seq, msgspec.convert(fact, OldWrites))
            case (("blob" | "values"), _):
                pass
            case _:
                raise Unsupported(f"event {seq} of a LangGraph thread was written by a newer release ({kind!r})")

    def apply_written(self, added: Mapping[bytes, int], facts: Sequence[tuple[int, object]]) -> None:
        """Apply the items of a write of this process, whose values and facts need not be decoded."""
        self.refs.update(added)
        for seq, fact in facts:
            if isinstance(fact, StoredPut):
                self._add_put(seq, fact)
            elif isinstance(fact, StoredTaskWrites):
                self._add_writes(seq, fact)

    def newest_first(self, ns: str | None = None, before: str | None = None) -> Iterator[StoredCheckpoint]:
        """The checkpoints of one namespace or all, those with a lower id than `before`. Looks only at what is taken from it."""
        if ns is None:
            each = [self.newest_first(one, before) for one in self._ids]
            yield from heapq.merge(*each, key=lambda one: one.id, reverse=True)
            return
        ids = self._ids.get(ns, [])
        for at in range(len(ids) if before is None else bisect_left(ids, before), 0, -1):
            yield self.checkpoints[ns, ids[at - 1]]

    def find(self, ns: str | None, wanted: str) -> list[StoredCheckpoint]:
        """The checkpoint with this id, of one namespace or all."""
        places = [(one, wanted) for one in (self._ids if ns is None else [ns])]
        return [self.checkpoints[place] for place in places if place in self.checkpoints]

    def get_newest(self, ns: str) -> StoredCheckpoint | None:
        return next(self.newest_first(ns), None)

    def ordered_writes(self, found: StoredCheckpoint) -> list[StoredWrite]:
        writes = self.writes.get((found.ns, found.id), {}).values()
        return sorted(writes, key=lambda one: (one.path, one.task, one.index))

    def _add_put(self, seq: int, fact: StoredPut) -> None:
        self._add_checkpoint(
            seq, fact, {channel: self._place(seq, channel, value) for channel, value in fact.values.items()}
        )

    def _add_checkpoint(self, seq: int, fact: StoredPut | OldCheckpoint, places: Mapping[str, Place]) -> None:
        if (fact.ns, fact.id) not in self.checkpoints:
            insort(self._ids.setdefault(fact.ns, []), fact.id)
        self.checkpoints[fact.ns, fact.id] = StoredCheckpoint(
            fact.ns, fact.id, fact.parent, fact.versions, fact.body, fact.metadata, dict(places)
        )
        for channel, place in places.items():
            self.versions[fact.ns, channel, fact.versions.get(channel)] = place
            if isinstance(place, StoredList):
                self.newest_lists[fact.ns, channel] = self.lists[seq, channel] = place

    def _remove(self, ns: str, wanted: str) -> None:
        self.writes.pop((ns, wanted), None)
        if self.checkpoints.pop((ns, wanted), None) is not None:
            ids = self._ids[ns]
            del ids[bisect_left(ids, wanted)]
            if not ids:
                del self._ids[ns]

    def _add_writes(self, seq: int, fact: StoredTaskWrites) -> None:
        writes = [
            StoredWrite(fact.task, fact.path, index, channel, self._place(seq, channel, value))
            for index, channel, value in fact.writes
        ]
        self._keep_writes((fact.ns, fact.id), writes)

    def _keep_writes(self, place: tuple[str, str], writes: Sequence[StoredWrite]) -> None:
        known = self.writes.setdefault(place, {})
        for write in writes:
            if write.index < 0 or (write.task, write.index) not in known:
                known[write.task, write.index] = write

    def _place(self, seq: int, channel: str, value: int | ListRef) -> Place:
        if isinstance(value, int):
            return value
        base_seq, parts = value
        base = None if base_seq is None else self.lists[base_seq, channel]
        return base if base is not None and parts == [(0, base.length)] else StoredList(seq, parts, base)

    def _add_old_checkpoint(self, seq: int, fact: OldCheckpoint) -> None:
        self._add_checkpoint(seq, fact, {name: self._old_place(seq, value) for name, value in fact.values.items()})

    def _add_old_writes(self, seq: int, fact: OldWrites) -> None:
        writes = [
            StoredWrite(one.task, one.path, one.index, one.channel, self._old_place(seq, one.value))
            for one in fact.writes
        ]
        self._keep_writes((fact.ns, fact.id), writes)

    def _old_place(self, seq: int, value: int) -> Place:
        if value not in self._trees:
            return value * PLACES
        return StoredList(seq, [one * PLACES for one in self._leaves(value)])

    def _leaves(self, tree: int) -> list[int]:
        depth, seqs = self._trees[tree]
        return seqs if depth == 0 else [leaf for one in seqs for leaf in self._leaves(one)]
