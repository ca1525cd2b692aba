"""The lists that were stored last, to find what is new in the next one without serializing what is not.

An element is unchanged if it is the same object and its content is the same as when it was stored. The content is compared
with a copy, so a change in place is found. Other objects than messages and plain data are serialized to compare them.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter, is_
from typing import Any

MOST_ELEMENTS = 50_000
"""Of all lists in memory: arbitrary."""
ATOMS = frozenset({str, int, float, bool, bytes, type(None)})
MESSAGES = "langchain_core.messages."
_fields, _extra = attrgetter("__dict__"), attrgetter("__pydantic_extra__")
ChannelKey = tuple[str, str, str]
"""Thread, namespace and channel."""
Hash = Callable[[Any], bytes]
"""The content hash of an element."""


class OpaqueError(Exception):
    """The content cannot be copied and compared."""


class RecentList:
    """A list as it was stored: its elements, and copies of their contents. One thread at a time may use it."""

    def __init__(self, hash_element: Hash) -> None:
        self.stored_in = "", 0
        """The session and the event that have the list."""
        self._hash = hash_element
        self._elements: list[Any] = []
        self._contents: list[Any] = []
        self._extras: list[Any] = []
        """Of messages, what is not in their fields."""
        self._opaque: dict[int, bytes] = {}
        """The content hashes of elements whose contents cannot be compared."""
        self._of_messages = False

    def __len__(self) -> int:
        return len(self._elements)

    def count_unchanged(self, now: Sequence[Any]) -> int:
        """How many elements at the beginning are as they were stored."""
        count = min(len(self), len(now))
        if not all(map(is_, self._elements, now)):
            count = _first_false(map(is_, self._elements, now), count)
        same = now[:count]
        if self._of_messages:
            count = _count_equal(self._contents, list(map(_fields, same)))
            count = min(count, _count_equal(self._extras, list(map(_extra, same))))
        else:
            count = _count_equal(self._contents, same)
        changed = (at for at, known in self._opaque.items() if at < count and self._hash(now[at]) != known)
        return min(changed, default=count)

    def keep(self, now: Sequence[Any], unchanged: int) -> None:
        """Remember the list, whose first elements are unchanged. Call it before the others are serialized."""
        if unchanged == 0:
            self._of_messages = bool(now) and _is_message(now[0])
        for known in (self._elements, self._contents, self._extras):
            del known[unchanged:]
        self._opaque = {at: one for at, one in self._opaque.items() if at < unchanged}
        for element in now[unchanged:]:
            if self._of_messages and not _is_message(element):
                break  # the rest is serialized each time
            self._add(element)

    def _add(self, element: Any) -> None:
        extra, content = None, element
        if self._of_messages:
            extra, content = _extra(element), _fields(element)
        try:
            content, extra = copy_plain(content), copy_plain(extra)
        except OpaqueError:
            self._opaque[len(self)] = self._hash(element)
        self._elements.append(element)
        self._contents.append(content)
        self._extras += [extra] if self._of_messages else []


class RecentLists:
    """The lists that were stored last. Thread-safe: a list is with one caller at a time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lists: OrderedDict[ChannelKey, RecentList] = OrderedDict()
        self._size = 0

    def take(self, key: ChannelKey) -> RecentList | None:
        with self._lock:
            found = self._lists.pop(key, None)
            self._size -= len(found) if found is not None else 0
            return found

    def put_back(self, key: ChannelKey, recent: RecentList) -> None:
        with self._lock:
            before = self._lists.pop(key, None)
            self._lists[key] = recent
            self._size += len(recent) - (len(before) if before is not None else 0)
            while self._size > MOST_ELEMENTS:
                _, oldest = self._lists.popitem(last=False)
                self._size -= len(oldest)

    def clear(self) -> None:
        with self._lock:
            self._lists.clear()
            self._size = 0


def copy_plain(value: Any) -> Any:
    """A deep copy of plain data. Raises OpaqueError if it contains anything else."""
    kind = type(value)
    if kind in ATOMS:
        return value
    if kind is dict:
        return {key: one if type(one) in ATOMS else copy_plain(one) for key, one in value.items()}
    if kind is list:
        return [one if type(one) in ATOMS else copy_plain(one) for one in value]
    if kind is tuple:
        return tuple(map(copy_plain, value))
    raise OpaqueError


def _is_message(element: Any) -> bool:
    return type(element).__module__.startswith(MESSAGES)


def _count_equal(known: list[Any], now: Sequence[Any]) -> int:
    """How many of the first contents are equal."""
    try:
        if known[: len(now)] == now:
            return len(now)
        return _first_false((one == other for one, other in zip(known, now, strict=False)), len(now))
    except (TypeError, ValueError):  # contents that cannot be compared any more
        return 0


def _first_false(found: Iterable[bool], count: int) -> int:
    """The place of the first false one; `count` if there is none."""
    return next((at for at, one in enumerate(found) if not one), count)
