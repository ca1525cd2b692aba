"""What a client of the API has been shown of a log, and a hash of it that grows with each message.

A client that sends its whole history is recognised by that hash. It is made from what both sides have: roles,
text, calls and their results. System text, pictures and files, reasoning, and whatever the server's own tools
did in the course of a turn are left out, and so is white space around a text, which clients like to trim.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator

import msgspec

from holdfast.model.entry import Entry
from holdfast.model.event import ModelSaid, ToolEnded, TurnEnded, TurnStarted, UserSaid
from holdfast.model.message import Role, ToolCall, text_of

BETWEEN = "\n\n"
"""What stands between two texts that the model gave in one turn, with work of the server's tools in between."""
NOTHING = ""
"""The hash before the first message."""


class Item(msgspec.Struct, frozen=True):
    """One message as the client has it."""

    role: Role
    text: str = ""
    calls: tuple[ToolCall, ...] = ()
    call_id: str = ""


class Point(msgspec.Struct, frozen=True):
    """The hash of all that had been shown when an event was committed."""

    seq: int
    hash: str


def grow(previous: str, item: Item) -> str:
    """The hash after one more message."""
    calls = [(call.id, call.name, _settled(call.arguments)) for call in item.calls]
    said = json.dumps([item.role, item.text.strip().replace("\r\n", "\n"), item.call_id, calls])
    return hashlib.sha256(f"{previous}\n{said}".encode()).hexdigest()[:40]


def _settled(arguments: str) -> str:
    """The arguments of a call in one spelling: clients parse them and write them anew."""
    try:
        return json.dumps(json.loads(arguments), sort_keys=True)
    except (ValueError, RecursionError):
        return arguments


def together(items: Iterable[Item]) -> Iterator[Item]:
    """The same messages without empty answers, and with answers in one piece that came in several."""
    last: Item | None = None
    for item in items:
        if item.role == "assistant" and not item.calls and not item.text.strip():
            continue
        if last is not None and last.role == item.role == "assistant" and not last.calls:
            last = Item("assistant", last.text + BETWEEN + item.text, item.calls)
            continue
        if last is not None:
            yield last
        last = item
    if last is not None:
        yield last


class Shown:
    """Folds a log from the beginning of a turn on. What was taken back must have been left out."""

    def __init__(self, hash_: str = NOTHING) -> None:
        self.hash = hash_
        self.points: list[Point] = []
        """One for the end of each turn."""
        self.items: list[Item] = []
        """What was shown since the last of them."""
        self._texts: list[str] = []
        self._calls: dict[str, ToolCall] = {}
        self._begun = False
        """Whether the turn has words: results that come before them are the client's."""

    def add(self, entry: Entry) -> None:
        event = entry.event
        match event:
            case TurnStarted():
                self._texts, self._calls, self._begun = [], {}, False
            case UserSaid():
                self._flush(())
                self._begun = True
                self.items.append(Item("user", text_of(event.parts)))
            case ToolEnded() if not self._begun and event.outcome == "ok":
                self.items.append(Item("tool", text_of(event.parts), call_id=event.call_id))
            case ModelSaid() if not event.partial:
                self._begun = True
                self._texts.append(text_of(event.parts))
                self._calls.update({part.id: part for part in event.parts if isinstance(part, ToolCall)})
            case TurnEnded():
                self._flush(event.awaiting)
                for item in together(self.items):
                    self.hash = grow(self.hash, item)
                self.items = []
                self.points.append(Point(entry.seq, self.hash))

    def _flush(self, awaiting: tuple[str, ...]) -> None:
        text = BETWEEN.join(text for text in self._texts if text.strip())
        calls = tuple(self._calls[call_id] for call_id in awaiting if call_id in self._calls)
        if text or calls:
            self.items.append(Item("assistant", text, calls))
        self._texts, self._calls = [], {}
