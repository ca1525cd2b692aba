"""What the model is shown: a view of the log, kept up event by event, so that a long session costs no more per turn.

The part that has not changed stays the same from request to request, byte for byte: providers' caches hit.
"""

from collections.abc import Iterable

from holdfast.model.asking import Request, ToolSpec
from holdfast.model.event import Entry, ModelSaid, SessionOpened
from holdfast.model.message import Message, ToolCall
from holdfast.model.session import as_message


class Context:
    """The messages that count, in order, and what else asking needs to know of the log."""

    def __init__(self, entries: Iterable[Entry] = ()) -> None:
        self._messages: list[Message] = []
        self.system: str | None = None
        """The session's own system text, if it was opened with one."""
        self.call_ids: set[str] = set()
        """Every call the model has ever made here."""
        for entry in entries:
            self.add(entry)

    def add(self, entry: Entry) -> None:
        """Take one more event in."""
        event = entry.event
        if isinstance(event, SessionOpened):
            self.system = event.system
        if isinstance(event, ModelSaid):
            self._drop_superseded(event.turn_id)
            self.call_ids.update(part.id for part in event.parts if isinstance(part, ToolCall))
        message = as_message(entry)
        if message is not None:
            self._messages.append(message)

    def _drop_superseded(self, turn_id: str) -> None:
        """A reply that was cut off and then asked for again in the same turn does not count: the whole one does."""
        place = self._cut_off(turn_id)
        if place is not None:
            del self._messages[place]

    def _cut_off(self, turn_id: str) -> int | None:
        """Where the cut-off reply of the turn stands, if its last reply was one."""
        for place in range(len(self._messages) - 1, -1, -1):
            message = self._messages[place]
            if message.turn_id != turn_id:
                return None
            if message.role == "assistant":
                return place if message.partial else None
        return None

    def request(self, turn_id: str, *, model: str, system: str, tools: tuple[ToolSpec, ...]) -> Request:
        """The request for the next reply of a turn."""
        place = self._cut_off(turn_id)
        counted = self._messages if place is None else self._messages[:place] + self._messages[place + 1 :]
        return Request(model=model, system=self.system or system, messages=tuple(counted), tools=tools)
