"""Parses server-sent events from bytes that may be split anywhere (https://html.spec.whatwg.org/#server-sent-events)."""

import json
from typing import TypeVar

import msgspec

from holdfast.model.errors import BadReply

T = TypeVar("T")
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
MAX_EVENT_BYTES = 64 * 1024 * 1024
"""Limit for one event, so that a server that never ends its line cannot use up the memory. Arbitrary: far above any
real event."""


class EventTooLarge(ValueError):
    """One event is larger than MAX_EVENT_BYTES."""


class ServerEvent(msgspec.Struct, frozen=True, gc=False):
    """One event: its name, empty if it has none, and its data."""

    name: bytes
    data: bytes


class SseParser:
    """Collects bytes and returns the events that they complete. Lines end with LF, CR or CRLF."""

    def __init__(self) -> None:
        self._tail: list[bytes] = []
        self._size = 0
        self._data: list[bytes] = []
        self._name = b""
        self._is_start = True
        self._after_cr = False

    def feed(self, chunk: bytes) -> list[ServerEvent]:
        """The events that end in this chunk. Raises EventTooLarge."""
        if self._after_cr and chunk:
            self._after_cr = False
            if chunk.startswith(b"\n"):
                chunk = chunk[1:]
        if not chunk:
            return []
        self._size += len(chunk)
        lines = chunk.splitlines()
        if chunk.endswith((b"\n", b"\r")):
            self._after_cr = chunk.endswith(b"\r")
            tail = b""
        else:
            tail = lines.pop()
        events: list[ServerEvent] = []
        if lines:
            if self._tail:
                lines[0] = b"".join((*self._tail, lines[0]))
                self._tail.clear()
            for line in lines:
                self._add_line(line, events)
        if tail:
            self._tail.append(tail)
        if events:
            self._size = len(tail)
        elif self._size > MAX_EVENT_BYTES:
            raise EventTooLarge(f"an event is larger than {MAX_EVENT_BYTES} bytes")
        return events

    def finish(self) -> list[ServerEvent]:
        """The event that the end of the stream completes: some servers omit the last line breaks."""
        events: list[ServerEvent] = []
        if self._tail:
            self._add_line(b"".join(self._tail), events)
            self._tail.clear()
        self._add_line(b"", events)
        return events

    def _add_line(self, line: bytes, events: list[ServerEvent]) -> None:
        if self._is_start:
            self._is_start = False
            line = line.removeprefix(BYTE_ORDER_MARK)
        if not line:
            if data := b"\n".join(self._data):
                events.append(ServerEvent(self._name, data))
            self._data = []
            self._name = b""
            return
        field, _, value = line.partition(b":")
        if field == b"data":
            self._data.append(value.removeprefix(b" "))
        elif field == b"event":
            self._name = value.removeprefix(b" ")


def decode_event(data: bytes, decoder: "msgspec.json.Decoder[T]", *, who: str) -> T:
    """Decode the data of an event. Raises BadReply if it is not JSON or not of this type."""
    try:
        try:
            return decoder.decode(data)
        except msgspec.ValidationError:
            raise
        except msgspec.DecodeError:
            # Python accepts what msgspec does not: half a surrogate pair, whose other half comes with the next event.
            return msgspec.convert(json.loads(data), decoder.type)
    except msgspec.ValidationError as e:
        raise BadReply(f"{who} sent an invalid event ({e}): try again") from e
    except (ValueError, RecursionError) as e:
        raise BadReply(f"{who} sent an event that is not JSON: try again") from e
