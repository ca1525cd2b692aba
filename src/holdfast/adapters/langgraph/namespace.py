"""The items of one namespace of a LangGraph store, and their values, which follow from them. Each namespace is a session.

A put has the value, and the vectors of its texts; a deletion has no value; a touch begins the life of items anew.
"""

import base64
import math
from array import array
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import unquote

import msgspec

from holdfast.adapters.framework_session import channel_of, path_of
from holdfast.adapters.items import decode_item, encode_item
from holdfast.adapters.log_fold import LogFold
from holdfast.model.event import ItemAdded

ADAPTER = "langgraph-store"
ROOT = "/"
"""The name of the session to which those of all namespaces belong. A label contains no slash in a name."""
PREFIX = channel_of(ADAPTER, "")
MINUTE = 60 * 1_000_000
TOUCH_SHARE = 100
"""A read is recorded when it is a hundredth of the item's life after the last one; otherwise each read would be a write."""
Namespace = tuple[str, ...]
Vector = Sequence[float]


class StoredChange(msgspec.Struct, frozen=True):
    """What one item of the log says. The time is in microseconds, and the life in minutes."""

    at: int
    key: str = ""
    value: dict[str, Any] | None = None
    ttl: float | None = None
    vectors: list[str] = []
    touched: list[str] = []


class StoredValue(msgspec.Struct):
    """A key with its value."""

    key: str
    value: dict[str, Any]
    created_at: int
    updated_at: int
    used_at: int
    ttl: float | None
    vectors: list[Vector]

    def is_live(self, at: int) -> bool:
        return self.ttl is None or at < self.used_at + self.ttl * MINUTE

    def needs_touch(self, at: int) -> bool:
        return self.ttl is not None and (at - self.used_at) * TOUCH_SHARE >= self.ttl * MINUTE


class NamespaceFold(LogFold):
    """The entries of a namespace, in the order of their first puts."""

    def __init__(self) -> None:
        super().__init__()
        self.entries: dict[str, StoredValue] = {}

    def clear(self) -> None:
        self.entries.clear()

    def apply(self, seq: int, event: ItemAdded) -> None:
        change = msgspec.convert(decode_item(event), StoredChange)
        for key in change.touched:
            if (touched := self.entries.get(key)) is not None:
                touched.used_at = change.at
        if change.touched:
            return
        if change.value is None:
            self.entries.pop(change.key, None)
            return
        before = self.entries.get(change.key)
        created = change.at if before is None else before.created_at
        vectors = [unpack_vector(one) for one in change.vectors]
        self.entries[change.key] = StoredValue(
            change.key, change.value, created, change.at, change.at, change.ttl, vectors
        )


def put_item(key: str, value: Mapping[str, Any], vectors: Sequence[Vector], *, ttl: float | None, at: int) -> ItemAdded:
    """Raises Invalid if the value is not JSON."""
    item: dict[str, Any] = {"at": at, "key": key, "value": dict(value)}
    item |= {"ttl": ttl} if ttl is not None else {}
    item |= {"vectors": [pack_vector(one) for one in vectors]} if vectors else {}
    return encode_item(ADAPTER, item)


def deletion_item(key: str, *, at: int) -> ItemAdded:
    return encode_item(ADAPTER, {"at": at, "key": key})


def touch_item(keys: Sequence[str], *, at: int) -> ItemAdded:
    return encode_item(ADAPTER, {"at": at, "touched": keys})


def name_of(namespace: Namespace) -> str:
    return path_of(*namespace)


def namespace_of(channel: str) -> Namespace:
    return tuple(map(unquote, channel.removeprefix(PREFIX).split("/")))


# Comparing.


def is_found(value: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    """Whether the value fulfils every condition of a filter."""
    return all(is_match(value.get(key), one) for key, one in wanted.items())


def is_match(value: Any, wanted: Any) -> bool:
    """Whether a value fulfils a filter: equal, or compared by operators such as `$gte`, also in nested objects."""
    if isinstance(wanted, Mapping):
        if any(str(name).startswith("$") for name in wanted):
            return all(_compare(value, name, operand) for name, operand in wanted.items())
        return isinstance(value, dict) and all(is_match(value.get(name), one) for name, one in wanted.items())
    if isinstance(wanted, list | tuple):
        return isinstance(value, list | tuple) and len(value) == len(wanted) and all(map(is_match, value, wanted))
    return bool(value == wanted)


def _compare(value: Any, operator: str, operand: Any) -> bool:
    match operator:
        case "$eq":
            return bool(value == operand)
        case "$ne":
            return bool(value != operand)
        case "$gt" | "$gte" | "$lt" | "$lte":
            number, limit = _number(value), _number(operand)
            if number is None or limit is None:
                return False
            return {"$gt": number > limit, "$gte": number >= limit, "$lt": number < limit, "$lte": number <= limit}[
                operator
            ]
    raise ValueError(f"Unsupported operator: {operator}")


def _number(value: Any) -> float | None:
    try:
        return float(value)
    except (TypeError, ValueError):
        return None


def is_labelled(namespace: Namespace, path: Sequence[str], *, at_end: bool) -> bool:
    """Whether the labels at the beginning or the end are those of the path, in which `*` stands for any."""
    part = namespace[len(namespace) - len(path) :] if at_end else namespace[: len(path)]
    return len(part) == len(path) and all(wanted in ("*", label) for wanted, label in zip(path, part, strict=True))


# Vectors.


def unit_vector(vector: Iterable[float]) -> Vector:
    """The vector with length 1."""
    numbers = [float(number) for number in vector]
    length = math.sqrt(sum(number * number for number in numbers)) or 1.0
    return [number / length for number in numbers]


def pack_vector(vector: Vector) -> str:
    """In single precision."""
    return base64.b64encode(array("f", unit_vector(vector)).tobytes()).decode("ascii")


def unpack_vector(packed: str) -> Vector:
    found = array("f")
    found.frombytes(base64.b64decode(packed))
    return found


def score(query: Vector, vectors: Iterable[Vector]) -> float | None:
    """The cosine of the nearest vector, all of length 1; None without vectors of the same dimensions."""
    found = [sum(map(float.__mul__, query, vector)) for vector in vectors if len(vector) == len(query)]
    return max(found, default=None)
