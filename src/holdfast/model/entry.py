"""A log entry: an event with its sequence number, its serialized form, and the hash that chains it to the previous one."""

import hashlib
import json
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from typing import TypeVar

import msgspec

from holdfast.model.errors import Corrupt, Invalid
from holdfast.model.event import KIND_OF, KINDS, Event, ItemAdded, ToolEnded, UserSaid

T = TypeVar("T")
FORMAT = 1
GENESIS = "0" * 64
"""The hash before the first event of a chain."""

MAX_BODY_BYTES = 256 * 1024 * 1024
"""The largest body accepted: far larger than any message, far smaller than the row limit of both databases."""


class Entry(msgspec.Struct, frozen=True):
    """An event at its position in a log."""

    seq: int
    at: int
    event: Event
    hash: str = ""

    @property
    def kind(self) -> str:
        return KIND_OF[type(self.event)]


_json = json.JSONEncoder(ensure_ascii=True, allow_nan=False, separators=(",", ":"))
_msgspec = msgspec.json.Encoder()
FLOAT_FIELDS = AMOUNT, COST, TEMPERATURE = b'"amount":', b'"cost":', b'"temperature":'
"""The fields of events that hold floats, which msgspec writes differently."""
WITHOUT_FLOATS = UserSaid, ToolEnded, ItemAdded
"""Kinds that need not be searched for them: the longest ones."""
_decoders = {kind: msgspec.json.Decoder(cls) for kind, cls in KINDS.items()}


def dumps(value: object) -> str:
    """Serialize a body: compact ASCII JSON with keys in the given order. The hash depends on this form."""
    return _json.encode(value)


def loads(text: str, type_: type[T]) -> T:
    """Parse the output of `dumps`. msgspec's decoder rejects lone surrogates, which represent bytes that are not UTF-8."""
    return msgspec.convert(json.loads(text), type_)


def encode(event: Event) -> str:
    """The body of an event. Raises Invalid if it is too large or not representable."""
    try:
        body = _encode_plain(event) or dumps(msgspec.to_builtins(event))
    except ValueError as e:  # JSON cannot represent infinity
        raise Invalid(f"a {KIND_OF[type(event)]} event cannot be written: {e}") from e
    if len(body) > MAX_BODY_BYTES:
        raise Invalid(f"an event of {len(body):,} bytes is over the limit of {MAX_BODY_BYTES:,}")
    return body


def _encode_plain(event: Event) -> str | None:
    """The body, several times as fast as with `dumps`, or None if msgspec could write the event differently."""
    try:
        body = _msgspec.encode(event)
    except UnicodeEncodeError:  # a lone surrogate
        return None
    if not body.isascii() or b"\x7f" in body:
        return None
    if not isinstance(event, WITHOUT_FLOATS) and (COST in body or TEMPERATURE in body or AMOUNT in body):
        return None
    return body.decode("ascii")


def decode(kind: str, body: str) -> Event:
    """The event of a stored row. Raises Corrupt for an unknown kind or an unreadable body."""
    decoder = _decoders.get(kind)
    if decoder is None:
        raise Corrupt(f"event kind {kind!r} is unknown to this release")
    try:
        return decoder.decode(body)
    except (msgspec.MsgspecError, ValueError) as e:
        if "\\ud" not in body:
            raise _unreadable(kind, e) from e
    try:
        return loads(body, KINDS[kind])
    except (msgspec.MsgspecError, ValueError) as e:
        raise _unreadable(kind, e) from e


def _unreadable(kind: str, reason: Exception) -> Corrupt:
    return Corrupt(f"the body of a {kind} event cannot be read: {reason}")


def decode_many(kind: str, bodies: Sequence[str]) -> list[Event]:
    """Like `decode` for the bodies of many events of one kind, twice as fast."""
    if kind in KINDS:
        with suppress(msgspec.MsgspecError, ValueError):
            return _list_decoder(kind).decode(f"[{','.join(bodies)}]")
    return [decode(kind, body) for body in bodies]  # names the unreadable one


@cache
def _list_decoder(kind: str) -> msgspec.json.Decoder[list[Event]]:
    return msgspec.json.Decoder(list[KINDS[kind]])  # type: ignore[valid-type] # a kind has one class


def link(previous: str, kind: str, at: int, body: str) -> str:
    """The hash that chains an event to the previous one. The input is ASCII unless a stored row was damaged."""
    return hashlib.sha256(f"{previous}\n{kind}\n{at}\n{body}".encode()).hexdigest()
