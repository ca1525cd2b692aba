"""Messages that clients send again and again with each request: recognised by their bytes, and then not parsed again.

A client without a session sends its whole history each time. The bytes of its earlier messages are the same, so that a
comparison of bytes replaces parsing, checking and hashing them. Two equal texts have equal messages: nothing depends on
who sent them first.
"""

import hashlib
import json
import threading
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from sys import getsizeof
from typing import Any

import msgspec

from holdfast.engine.admission.history_match import ClientHistory, ClientMessage
from holdfast.model.message import Text

MIN_BYTES = 4_096
"""Shorter bodies are parsed in less time than they are compared."""
MAX_HISTORIES = 256
MAX_BYTES = 64_000_000
"""Estimated memory of all of them."""
MESSAGE_BYTES = 800
"""Memory of a message besides its text: the message and its hash."""
PROBE = 64
"""Bytes at the end of a history that are compared first: most histories that are not the right one differ there."""
NOT_DIGESTED = ("stream", "stream_options")
_fields = msgspec.json.Decoder(dict[str, msgspec.Raw])


class RequestDigest:
    """The SHA-256 of a request as JSON with sorted keys, without its streaming options, extended message by message."""

    def __init__(self, head: str, hash_: "hashlib._Hash", *, is_empty: bool = True) -> None:
        self._head = head
        self._hash = hash_
        self._is_empty = is_empty

    @classmethod
    def begin(cls, data: Mapping[str, Any]) -> "RequestDigest":
        head = _head(data)
        return cls(head, hashlib.sha256(head.encode()))

    def continues(self, data: Mapping[str, Any]) -> bool:
        """Whether what comes before the messages is the same in this request."""
        return self._head == _head(data)

    def extend(self, messages: Sequence[object]) -> "RequestDigest":
        extended = self._hash.copy()
        if messages:
            text = json.dumps(messages, sort_keys=True)[1:-1]
            extended.update((text if self._is_empty else f", {text}").encode())
        return RequestDigest(self._head, extended, is_empty=self._is_empty and not messages)

    def finish(self, data: Mapping[str, Any]) -> str:
        whole = self._hash.copy()
        whole.update(f"]{''.join(f', {field}' for field in _dumped(data, before=False))}}}".encode())
        return whole.hexdigest()


def _head(data: Mapping[str, Any]) -> str:
    return f'{{{"".join(f"{field}, " for field in _dumped(data, before=True))}"messages": ['


def _dumped(data: Mapping[str, Any], *, before: bool) -> list[str]:
    """The fields before or after the messages, in order."""
    names = sorted(name for name in data if name not in NOT_DIGESTED and name != "messages")
    return [
        f"{json.dumps(name)}: {json.dumps(data[name], sort_keys=True)}"
        for name in names
        if (name < "messages") is before
    ]


class KnownMessages(msgspec.Struct, frozen=True):
    """The messages of a request, parsed and hashed."""

    text: bytes
    """The JSON of the list without its closing bracket."""
    count: int
    """How many messages, with those of the system."""
    history: ClientHistory
    system: tuple[str, ...]
    digest: RequestDigest
    string_bytes: int
    """Memory of their strings. One character outside of ASCII can make a string four times as large as its JSON."""

    @property
    def memory_bytes(self) -> int:
        return len(self.text) + self.string_bytes + MESSAGE_BYTES * self.count


def count_string_bytes(given: Iterable[ClientMessage | str]) -> int:
    """The memory of the strings in these messages, in bytes."""
    total = 0
    for one in given:
        if isinstance(one, str):
            total += getsizeof(one)
        else:
            total += sum(getsizeof(part.text if isinstance(part, Text) else part.url) for part in one.parts)
            total += sum(getsizeof(call.arguments) for call in one.calls)
    return total


class SplitBody(msgspec.Struct, frozen=True):
    """A body in which the messages are not parsed yet."""

    fields: dict[str, msgspec.Raw]
    messages: bytes
    known: KnownMessages | None

    def parse(self) -> dict[str, Any]:
        """The body, with only the messages after the known ones. Raises DecodeError."""
        data = {name: msgspec.json.decode(value) for name, value in self.fields.items() if name != "messages"}
        rest = self.messages if self.known is None else self.messages[len(self.known.text) :].lstrip()
        data["messages"] = msgspec.json.decode(b"[" + rest[1:] if rest[:1] == b"," else b"[" + rest)
        return data


class MessageMemo:
    """The newest histories. Requests of several threads use it."""

    def __init__(self) -> None:
        self._kept: OrderedDict[bytes, KnownMessages] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()

    def split(self, body: bytes) -> SplitBody | None:
        """Split a body, with the longest known beginning of its messages; None if it is not as expected."""
        try:
            fields = _fields.decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return None
        messages = bytes(fields.get("messages", b""))
        return SplitBody(fields, messages, self._find(messages)) if messages[:1] == b"[" else None

    def _find(self, messages: bytes) -> KnownMessages | None:
        with self._lock:
            kept = list(self._kept.values())
        best: KnownMessages | None = None
        for known in kept:
            size = len(known.text)
            if size >= len(messages) or (best is not None and size <= len(best.text)):
                continue
            is_likely = messages[max(0, size - PROBE) : size] == known.text[-PROBE:]
            if is_likely and messages.startswith(known.text) and messages[size:].lstrip()[:1] in (b",", b"]"):
                best = known
        return best

    def remember(self, known: KnownMessages, instead: KnownMessages | None) -> None:
        """Remember the messages of a request, in place of those that it has continued, if they are a history."""
        if not any(one.role == "assistant" for one in known.history.given):
            return
        with self._lock:
            for old in (known, instead):
                if old is not None and (found := self._kept.pop(old.text, None)) is not None:
                    self._bytes -= found.memory_bytes
            self._kept[known.text] = known
            self._bytes += known.memory_bytes
            while self._kept and (len(self._kept) > MAX_HISTORIES or self._bytes > MAX_BYTES):
                self._bytes -= self._kept.popitem(last=False)[1].memory_bytes
