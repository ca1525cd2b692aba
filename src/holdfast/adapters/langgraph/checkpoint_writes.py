"""Prepares what LangGraph puts: values are serialized in the caller's thread, before the write begins."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, cast

import msgspec
from langgraph.checkpoint.base import WRITES_IDX_MAP, get_checkpoint_id, get_checkpoint_metadata

from holdfast.adapters.framework_session import Written
from holdfast.adapters.langgraph.item_writer import ItemWriter, name_place
from holdfast.adapters.langgraph.items import (
    EncodedValue,
    ListRef,
    StoredPut,
    StoredTaskWrites,
    TypedSerializer,
    encode_value,
    pack,
)
from holdfast.adapters.langgraph.recent_lists import ChannelKey, RecentList, RecentLists
from holdfast.adapters.langgraph.thread_state import Place, ThreadState
from holdfast.adapters.session_pool import PooledSession
from holdfast.model.event import Event
from holdfast.model.session import Session
from holdfast.store.database import Transaction


class PreparedList(msgspec.Struct, frozen=True):
    """The elements of a list, of which the first ones are as an event has them, and the others are serialized."""

    elements: list[Any]
    unchanged: int
    added: list[EncodedValue]
    recent: RecentList | None = None
    stored_in: tuple[str, int] = ("", 0)


PreparedValue = EncodedValue | PreparedList


class Prepared(ABC):
    """One put, or the writes of one task."""

    def __init__(self, ns: str, serde: TypedSerializer) -> None:
        self.ns = ns
        self._serde = serde
        self._written: ItemWriter | None = None

    def decide(self, thread: PooledSession[ThreadState], tx: Transaction, session: Session) -> Sequence[Event]:
        """The events of the write."""
        with thread.state() as state:
            state.catch_up(tx, session)
            self._written = writer = ItemWriter(state, session.seq)
            self._add(state, writer, session.id)
        return writer.events

    def apply(self, state: ThreadState) -> None:
        """Apply the events that were written: those that `decide` returned last."""
        if self._written is not None:
            state.apply_written(self._written.added, self._written.facts)

    @abstractmethod
    def note(self, written: Written | None) -> None:
        """Remember what is durable now."""

    @abstractmethod
    def _add(self, state: ThreadState, writer: ItemWriter, session_id: str) -> None:
        """Add the items to the writer."""

    def _prepare(self, value: Any, recent: RecentList | None = None) -> PreparedValue:
        if type(value) is not list:
            return encode_value(self._serde, value)
        elements = list(value)
        if recent is None:
            return PreparedList(elements, 0, self._encode(elements))
        unchanged = recent.count_unchanged(elements)
        recent.keep(elements, unchanged)  # first: what another thread changes meanwhile then differs from the copy
        return PreparedList(elements, unchanged, self._encode(elements[unchanged:]), recent, recent.stored_in)

    def _place(
        self, channel: str, prepared: PreparedValue, state: ThreadState, writer: ItemWriter, session_id: str
    ) -> int | ListRef:
        """Where the value is stored, or is going to be."""
        if isinstance(prepared, EncodedValue):
            return writer.add_value(prepared)
        unchanged, added, (stored_id, seq) = prepared.unchanged, prepared.added, prepared.stored_in
        base = state.lists.get((seq, channel)) if stored_id == session_id else None
        if base is None:
            base = state.newest_lists.get((self.ns, channel))
            unchanged, added = 0, self._encode(prepared.elements[:unchanged]) + added
        return writer.add_list(added, base, unchanged)

    def _encode(self, elements: Sequence[Any]) -> list[EncodedValue]:
        return [encode_value(self._serde, one) for one in elements]

    def _hash(self, element: Any) -> bytes:
        return encode_value(self._serde, element).key


class PreparedPut(Prepared):
    """A checkpoint with the values of its channels."""

    def __init__(self, config: Any, checkpoint: Any, metadata: Any, serde: TypedSerializer, lists: RecentLists) -> None:
        super().__init__(str(config["configurable"].get("checkpoint_ns", "")), serde)
        self._thread = str(config["configurable"]["thread_id"])
        self._lists = lists
        body = dict(checkpoint)
        self._values = cast("dict[str, Any]", body.pop("channel_values"))
        versions = dict(body.pop("channel_versions"))
        self._fact = StoredPut(
            self.ns,
            checkpoint["id"],
            get_checkpoint_id(config),
            versions,
            pack(serde.dumps_typed(body)),
            pack(serde.dumps_typed(get_checkpoint_metadata(config, metadata))),
            {},
        )
        self._prepared: dict[str, PreparedValue] = {}

    def prepare(self, channels: Sequence[str]) -> None:
        """Serialize what is new in the values of these channels."""
        for channel in channels:
            if channel in self._values and channel in self._fact.versions:
                recent = self._lists.take(self._key(channel))
                self._prepared[channel] = self._prepare(self._values[channel], recent or RecentList(self._hash))

    def note(self, written: Written | None) -> None:
        if written is None:
            return
        for channel, value in self._prepared.items():
            if isinstance(value, PreparedList) and value.recent is not None:
                value.recent.stored_in = written.after.session_id, written.after.seq
                self._lists.put_back(self._key(channel), value.recent)

    def _add(self, state: ThreadState, writer: ItemWriter, session_id: str) -> None:
        places: dict[str, int | ListRef] = {}
        for channel, version in self._fact.versions.items():
            known = None if channel in self._prepared else self._find(state, channel, version)
            if known is not None:
                places[channel] = name_place(known)
            elif channel in self._values:
                value = self._prepared.get(channel) or self._prepare(self._values[channel])
                places[channel] = self._place(channel, value, state, writer, session_id)
        writer.end_event("put", msgspec.structs.replace(self._fact, values=places))

    def _find(self, state: ThreadState, channel: str, version: object) -> Place | None:
        """Where the value of an unchanged channel is stored. Two branches may give different values the same version."""
        parent = state.checkpoints.get((self.ns, self._fact.parent or ""))
        if parent is not None and parent.versions.get(channel) == version and channel in parent.values:
            return cast("Place", parent.values[channel])
        return None if channel in self._values else state.versions.get((self.ns, channel, version))

    def _key(self, channel: str) -> ChannelKey:
        return self._thread, self.ns, channel


class PreparedWrites(Prepared):
    """The writes of a task."""

    def __init__(
        self, config: Any, writes: Sequence[tuple[str, Any]], task: str, path: str, serde: TypedSerializer
    ) -> None:
        super().__init__(str(config["configurable"].get("checkpoint_ns", "")), serde)
        self._fact = StoredTaskWrites(self.ns, config["configurable"]["checkpoint_id"], task, path, [])
        self._writes = [
            (WRITES_IDX_MAP.get(channel, index), channel, self._prepare(value))
            for index, (channel, value) in enumerate(writes)
        ]

    def note(self, written: Written | None) -> None:
        """Nothing: the next writes are not compared with these."""

    def _add(self, state: ThreadState, writer: ItemWriter, session_id: str) -> None:
        stored = [
            (index, channel, self._place(channel, value, state, writer, session_id))
            for index, channel, value in self._writes
        ]
        writer.end_event("writes", msgspec.structs.replace(self._fact, writes=stored))


class CheckpointWriter:
    """Prepares writes, and remembers the lists that were stored last."""

    def __init__(self, get_serializer: Callable[[], TypedSerializer]) -> None:
        self._get_serializer = get_serializer
        self._lists = RecentLists()

    def prepare_put(self, config: Any, checkpoint: Any, metadata: Any, new_versions: Any) -> Prepared:
        put = PreparedPut(config, checkpoint, metadata, self._get_serializer(), self._lists)
        put.prepare(list(new_versions))
        return put

    def prepare_writes(self, config: Any, writes: Sequence[tuple[str, Any]], task: str, path: str) -> Prepared:
        return PreparedWrites(config, writes, task, path, self._get_serializer())

    def forget(self) -> None:
        """Free the memory."""
        self._lists.clear()
