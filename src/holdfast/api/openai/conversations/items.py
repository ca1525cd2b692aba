"""The items of a conversation, derived from the log of its session. Those of a response have the ids that the response gave."""

import re
from collections.abc import Iterable

import msgspec

from holdfast.api.openai.responses import ids
from holdfast.api.openai.responses.document import Object, ResponseFacts
from holdfast.api.openai.responses.events import ResponseEvents
from holdfast.api.openai.responses.lookup import input_message, result_item
from holdfast.model.entry import Entry
from holdfast.model.event import MessageRemoved, ModelSaid, ToolEnded, TurnEnded, TurnStarted, UserSaid
from holdfast.model.ids import SESSION
from holdfast.model.message import ToolCall
from holdfast.model.session import standing

TURN_ID = re.compile(r"turn-[0-9a-z]{20}")


class ListedItem(msgspec.Struct, frozen=True):
    seq: int
    """The event with its content."""
    document: Object

    @property
    def id(self) -> str:
        return str(self.document["id"])


class _TurnItems:
    """The items of one turn."""

    def __init__(self, session_id: str, started: TurnStarted) -> None:
        terms = started.terms
        self._facts = ResponseFacts(session_id, started.turn_id, started.turn_id, terms.model, terms)
        self._events = ResponseEvents(self._facts)
        self._given = 0
        self._made: set[str] = set()
        self._said_at = 0

    def add(self, entry: Entry) -> list[ListedItem]:
        """The items that are complete with this event."""
        event = entry.event
        if isinstance(event, UserSaid):
            return [self._input("msg", entry.seq, input_message(event.parts))]
        if isinstance(event, ToolEnded):
            return [] if event.call_id in self._made else [self._input("fco", entry.seq, result_item(event))]
        if isinstance(event, ModelSaid):
            self._said_at = entry.seq
            self._made |= {part.id for part in event.parts if isinstance(part, ToolCall)}
        before = len(self._events.output)
        self._events.take(entry)
        return [
            ListedItem(self._said_at or entry.seq, self._named(item, entry.seq))
            for item in self._events.output[before:]
        ]

    def _input(self, kind: str, seq: int, item: Object) -> ListedItem:
        about = self._facts
        id_ = ids.item_id(kind, about.session_id, about.turn_id, self._given, given=True)
        self._given += 1
        return ListedItem(seq, self._named({"id": id_, **item}, seq))

    def _named(self, item: Object, seq: int) -> Object:
        """The item; one of a turn that has no id of this form, such as an imported one, is named by its event."""
        if TURN_ID.fullmatch(self._facts.turn_id):
            return item
        kind = str(item["id"]).partition("_")[0]
        return {**item, "id": f"{kind}_{self._facts.session_id.removeprefix(SESSION)}_e{seq}"}


def list_items(session_id: str, entries: Iterable[Entry]) -> list[ListedItem]:
    """All items, oldest first, without those that were removed or taken back."""
    found: list[ListedItem] = []
    turns: dict[str, _TurnItems] = {}
    removed: set[int] = set()
    for entry in standing(entries):
        event = entry.event
        turn_id = getattr(event, "turn_id", None)
        if isinstance(event, TurnStarted):
            turns[event.turn_id] = _TurnItems(session_id, event)
        elif isinstance(event, MessageRemoved):
            removed.add(event.seq)
        elif turn_id in turns:
            found += turns[turn_id].add(entry)
            if isinstance(event, TurnEnded):
                del turns[turn_id]
    return [item for item in found if item.seq not in removed or item.document["type"] == "function_call"]
