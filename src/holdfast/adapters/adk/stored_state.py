"""The items of an ADK session, or of a state that sessions share, and the state that follows from them.

An object is an event of ADK, whose `state_delta` changes the state. An array is an item of ours: `["state", state, time]`
has the whole state, `["delta", changes, time]` changes it. A whole state follows whenever the items since the last one
are four times as long as it, so reading the newest state costs the same behind any history.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec

from holdfast.adapters.items import ItemReader, StoredItem, encode_item
from holdfast.adapters.log_fold import KeyIndex
from holdfast.model.event import ItemAdded

ADAPTER = "adk"
SHARED_ADAPTER = "adk-state"
"""For the states that all sessions of an app or of a user share."""
SHORTEST = 16 * 1024
"""Characters of items before a state is stored whole. Arbitrary: some dozen events."""
TIMES_STATE = 4
"""A whole state thus adds a quarter to what is stored at most."""
State = dict[str, Any]


class Actions(msgspec.Struct, frozen=True):
    state_delta: State = {}


class EventFields(msgspec.Struct, frozen=True):
    """What we read of an event of ADK."""

    id: str = ""
    timestamp: float = 0.0
    actions: Actions = Actions()


class SessionView(msgspec.Struct, frozen=True):
    """A session as read from its newest items. The time is that of the last event."""

    events: Sequence[str] = ()
    state: State = {}
    time: float = 0.0
    newest: int = 0
    """The number of the last item in the log."""
    length: int = 0
    """Characters of the items since the last whole state."""


class SessionFold(KeyIndex):
    """The state of a session, and which events it has."""

    def __init__(self) -> None:
        super().__init__()
        self.reader = ItemReader(ADAPTER)
        self.state: State = {}
        self.time = 0.0
        self.newest = 0
        self.newest_event = ""
        self._length = 0

    def clear(self) -> None:
        super().clear()
        self.state, self.time, self.newest, self.newest_event, self._length = {}, 0.0, 0, "", 0

    def apply(self, seq: int, event: ItemAdded) -> None:
        super().apply(seq, event)
        is_whole, changes, self.time = read_changes(event.item)
        if is_whole:
            self.state = {}
        self.state.update(changes)
        self.newest, self.newest_event = seq, event.key or self.newest_event
        self._length = 0 if is_whole else self._length + len(event.item)

    def whole_state_after(self, added: ItemAdded) -> Sequence[ItemAdded]:
        """The item with the whole state, if it has to follow the added one."""
        if self._length + len(added.item) < SHORTEST:
            return []
        _, changes, time = read_changes(added.item)
        return whole_state_if_due(ADAPTER, {**self.state, **changes}, self._length + len(added.item), time)


Wants = Callable[[EventFields, int], bool]
"""Whether to read an event, given how many newer ones were read."""


def read_session(items: Iterator[StoredItem], wants: Wants | None = None) -> SessionView:
    """Read backwards, newest first, until the state is complete and an event is not wanted; without `wants`, all events."""
    events: list[str] = []
    later: list[State] = []
    state: State | None = None
    first: StoredItem | None = None
    time, length, is_wanted = 0.0, 0, True
    for item in items:
        text = item.event.item
        is_event = text.startswith("{")
        if state is None:
            is_whole, changes, at = read_changes(text)
            time = time if first is not None else at
            state = changes if is_whole else None
            later += [changes] if changes and not is_whole else []
            length += 0 if is_whole else len(text)
        first = first or item
        if is_event and is_wanted:
            is_wanted = wants is None or wants(msgspec.json.decode(text, type=EventFields), len(events))
            events += [text] if is_wanted else []
        if state is not None and not is_wanted:
            break
    merged = dict(state or {})
    for changes in reversed(later):
        merged.update(changes)
    return SessionView(events[::-1], merged, time, 0 if first is None else first.seq, length)


def read_changes(text: str) -> tuple[bool, State, float]:
    """Whether an item has the whole state; the keys that it sets; and its time."""
    if text.startswith("{"):
        fields = msgspec.json.decode(text, type=EventFields)
        return False, fields.actions.state_delta, fields.timestamp
    kind, state, time = json.loads(text)
    return kind == "state", state, time


def whole_state(adapter: str, state: State, time: float) -> ItemAdded:
    return encode_item(adapter, ["state", state, time])


def changed_state(changes: State, time: float) -> ItemAdded:
    return encode_item(SHARED_ADAPTER, ["delta", changes, time])


def whole_state_if_due(adapter: str, state: State, length: int, time: float) -> Sequence[ItemAdded]:
    """The item with the whole state, if it is short beside the items that were stored since the last one."""
    whole = whole_state(adapter, state, time)
    return [whole] if length >= max(SHORTEST, TIMES_STATE * len(whole.item)) else []
