"""The transcript that an API client has of a log, with a hash that is extended by each message.

The hash identifies a client that sends its whole history. It covers what both sides have: roles,
text, calls and their results. It leaves out system text, images, files, reasoning and calls of the server's
own tools, and the white space around a text, which many clients trim.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator

import msgspec

from holdfast.model.entry import Entry
from holdfast.model.event import ModelSaid, ToolEnded, TurnEnded, TurnStarted, UserSaid
from holdfast.model.message import Role, ToolCall, text_of

BETWEEN = "\n\n"
"""Separates two texts of one turn between which the server's tools ran."""
NOTHING = ""
"""The hash before the first message."""


class TranscriptItem(msgspec.Struct, frozen=True):
    """One message as the client knows it."""

    role: Role
    text: str = ""
    calls: tuple[ToolCall, ...] = ()
    call_id: str = ""


class TranscriptPoint(msgspec.Struct, frozen=True):
    """The hash of the transcript when an event was committed."""

    seq: int
    hash: str
    reply: str = ""
    """The hash of the last reply alone, as data; empty if the turn had none."""


def grow(previous: str, item: TranscriptItem) -> str:
    """The hash after one more message."""
    calls = [(call.id, call.name, _settled(call.arguments)) for call in item.calls]
    said = json.dumps([item.role, item.text.strip().replace("\r\n", "\n"), item.call_id, calls])
    return hashlib.sha256(f"{previous}\n{said}".encode()).hexdigest()[:40]


def _settled(arguments: str) -> str:
    """The arguments of a call in a canonical form, because clients parse and serialize them again."""
    try:
        return json.dumps(json.loads(arguments), sort_keys=True)
    except (ValueError, RecursionError):
        return arguments


def as_data(reply: TranscriptItem) -> TranscriptItem:
    """The reply by its value: one call without text stands for its arguments, and JSON is in a canonical form.

    Clients for structured outputs offer a tool only for its schema, and keep the arguments of the call as the text of the reply.
    """
    is_call = len(reply.calls) == 1 and not reply.text.strip()
    value = reply.calls[0].arguments if is_call else reply.text
    if (reply.calls and not is_call) or not value.lstrip().startswith("{"):
        return reply
    return TranscriptItem(reply.role, _settled(value))


def together(items: Iterable[TranscriptItem]) -> Iterator[TranscriptItem]:
    """The same messages without empty replies, and with consecutive replies joined."""
    last: TranscriptItem | None = None
    for item in items:
        if item.role == "assistant" and not item.calls and not item.text.strip():
            continue
        if last is not None and last.role == item.role == "assistant" and not last.calls:
            last = TranscriptItem("assistant", last.text + BETWEEN + item.text, item.calls)
            continue
        if last is not None:
            yield last
        last = item
    if last is not None:
        yield last


class ClientTranscript:
    """Built from log entries, from the start of a turn. The caller leaves out rewound entries."""

    def __init__(self, hash_: str = NOTHING) -> None:
        self.hash = hash_
        self.points: list[TranscriptPoint] = []
        """One per ended turn."""
        self.items: list[TranscriptItem] = []
        """The messages since the last point."""
        self.settled: list[TranscriptItem] = []
        """The messages up to the last point."""
        self._texts: list[str] = []
        self._calls: dict[str, ToolCall] = {}
        self._begun = False
        """Whether the turn has a message yet: tool results before the first one come from the client."""

    def add(self, entry: Entry) -> None:
        event = entry.event
        match event:
            case TurnStarted():
                self._texts, self._calls, self._begun = [], {}, False
            case UserSaid():
                self._flush(())
                self._begun = True
                self.items.append(TranscriptItem("user", text_of(event.parts)))
            case ToolEnded() if not self._begun and event.outcome in ("ok", "failed"):
                self.items.append(TranscriptItem("tool", text_of(event.parts), call_id=event.call_id))
            case ModelSaid() if not event.partial:
                self._begun = True
                self._texts.append(text_of(event.parts))
                self._calls.update({part.id: part for part in event.parts if isinstance(part, ToolCall)})
            case TurnEnded():
                self._flush(event.awaiting)
                reply = ""
                for item in together(self.items):
                    self.hash = grow(self.hash, item)
                    reply = grow(NOTHING, as_data(item)) if item.role == "assistant" else reply
                    self.settled.append(item)
                self.items = []
                self.points.append(TranscriptPoint(entry.seq, self.hash, reply))

    def _flush(self, awaiting: tuple[str, ...]) -> None:
        text = BETWEEN.join(text for text in self._texts if text.strip())
        calls = tuple(self._calls[call_id] for call_id in awaiting if call_id in self._calls)
        if text or calls:
            self.items.append(TranscriptItem("assistant", text, calls))
        self._texts, self._calls = [], {}
