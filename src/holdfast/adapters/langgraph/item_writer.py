"""The items of one write to a LangGraph thread."""

from collections.abc import Sequence

from holdfast.adapters.langgraph.items import PLACES, EncodedValue, ListRef, Parts, encode_fact
from holdfast.adapters.langgraph.thread_state import Place, StoredList, ThreadState
from holdfast.model.event import ItemAdded

FEW = 8
"""New elements that are not looked for in the list before: arbitrary."""
MOST_VALUES = 500
MOST_CHARACTERS = 1_000_000
"""Of the values in one event: arbitrary."""


class ItemWriter:
    """Collects the items, numbered after the last event of the thread. Each has at most one message, for the transcript."""

    def __init__(self, state: ThreadState, last_seq: int) -> None:
        self.events: list[ItemAdded] = []
        self._state = state
        self._seq = last_seq + 1
        self._values: list[EncodedValue] = []
        self._characters = 0
        self._has_message = False
        self.added: dict[bytes, int] = {}
        """The references of the values in these items, by content hash."""
        self.facts: list[tuple[int, object]] = []
        """The facts in these items, with the numbers of their events."""

    def add_value(self, value: EncodedValue) -> int:
        """The reference of the value, which is added if the thread does not have it."""
        found = self._state.refs.get(value.key) or self.added.get(value.key)
        if found is not None:
            return found
        size = sum(map(len, value.packed)) + len(value.text)
        full = len(self._values) >= MOST_VALUES or self._characters + size > MOST_CHARACTERS
        if self._values and (full or (value.role and self._has_message)):
            self.end_event("values")
        ref = self.added[value.key] = self._seq * PLACES + len(self._values)
        self._values.append(value)
        self._characters += size
        self._has_message |= value.role is not None
        return ref

    def add_list(self, elements: Sequence[EncodedValue], base: StoredList | None, kept: int = 0) -> ListRef:
        """The list of the first `kept` elements of the base and these elements, of which the base may have some too."""
        refs = [self.add_value(one) for one in elements]
        if base is None:
            return None, [*refs]
        if kept and len(refs) <= FEW:
            return base.seq, [(0, kept), *refs]
        known = base.refs()
        parts = describe(known, known[:kept] + refs)
        is_new = all(isinstance(part, int) for part in parts)
        return (None if is_new else base.seq), parts

    def end_event(self, kind: str, fact: object = None) -> None:
        """The values collected so far become an event, with the fact if there is one."""
        self.events.append(encode_fact(kind, self._values, fact))
        if fact is not None:
            self.facts.append((self._seq, fact))
        self._seq += 1
        self._values, self._characters, self._has_message = [], 0, False


def name_place(place: Place) -> int | ListRef:
    """How a fact names a value that is stored."""
    return place if isinstance(place, int) else (place.seq, [(0, place.length)])


def describe(base: Sequence[int], refs: Sequence[int]) -> Parts:
    """The list as slices of the other list, as long as possible, and references."""
    places = {ref: at for at, ref in reversed(list(enumerate(base)))}
    parts: Parts = []
    at = 0
    while at < len(refs):
        start = places.get(refs[at])
        if start is None:
            parts.append(refs[at])
            at += 1
            continue
        length = 1
        while at + length < len(refs) and start + length < len(base) and refs[at + length] == base[start + length]:
            length += 1
        parts.append((start, start + length))
        at += length
    return parts
