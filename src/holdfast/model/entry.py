"""An event in its place in a log: its one written form, and the hash that chains it to the one before it."""

import hashlib
import json

import msgspec

from holdfast.model.errors import Corrupt, Invalid
from holdfast.model.event import KIND_OF, KINDS, Event

FORMAT = 1
GENESIS = "0" * 64
"""What stands before the first event of a chain."""

MAX_BODY_BYTES = 256 * 1024 * 1024
"""The largest body accepted: well over any message, well under what both databases can hold in a row."""


class Entry(msgspec.Struct, frozen=True):
    """An event in its place in a log."""

    seq: int
    at: int
    event: Event
    hash: str = ""

    @property
    def kind(self) -> str:
        return KIND_OF[type(self.event)]


_json = json.JSONEncoder(ensure_ascii=True, allow_nan=False, separators=(",", ":"))
_decoders = {kind: msgspec.json.Decoder(cls) for kind, cls in KINDS.items()}


def dumps(value: object) -> str:
    """The one way bodies are written: compact JSON in ASCII, keys in the order given."""
    return _json.encode(value)


def encode(event: Event) -> str:
    """The body of an event. Raises Invalid for one that no database row can hold."""
    try:
        body = dumps(msgspec.to_builtins(event))
    except ValueError as e:  # JSON has no word for infinity
        raise Invalid(f"a {KIND_OF[type(event)]} event cannot be written: {e}") from e
    if len(body) > MAX_BODY_BYTES:
        raise Invalid(f"an event of {len(body):,} bytes is over the limit of {MAX_BODY_BYTES:,}")
    return body


def decode(kind: str, body: str) -> Event:
    """The event of a stored row. Raises Corrupt for a kind or a body this release cannot read."""
    decoder = _decoders.get(kind)
    if decoder is None:
        raise Corrupt(f"event kind {kind!r} is not known to this release")
    try:
        if "\\ud" not in body:
            return decoder.decode(body)
        # msgspec refuses lone surrogates, which stand for the bytes of tool output that are not UTF-8.
        return msgspec.convert(json.loads(body), KINDS[kind])
    except (msgspec.MsgspecError, ValueError) as e:
        raise Corrupt(f"the body of a {kind} event cannot be read: {e}") from e


def link(previous: str, kind: str, at: int, body: str) -> str:
    """The hash that chains an event to the one before it. All of it is ASCII, unless a stored row was damaged."""
    return hashlib.sha256(f"{previous}\n{kind}\n{at}\n{body}".encode()).hexdigest()
