"""What the model is told beside what is said: how its background processes ended, and what still runs after a reset.

A note stands where it became known, as words that are marked as nobody's; never between a call and its result, so it
waits until no result is owed. It is read off the log alone, and so stands in the same place each time.
"""

from collections.abc import Iterator

from holdfast.model.entry import Entry
from holdfast.model.event import ModelSaid, ProcessEnded, ProcessesReceived, ProcessExpired, Renewed, Rewound, ToolEnded
from holdfast.model.message import Message, Text, ToolCall
from holdfast.model.process import duration

FROM = "Note from the system, not from the user"
BY_THE_AGENT = "ended by the agent"
"""How the reason of a process begins whose end the model has caused itself: it knows."""


def told(entry: Entry) -> str | None:
    """The note that an event makes, if it makes one."""
    event = entry.event
    match event:
        case ProcessEnded() if not event.reason.startswith(BY_THE_AGENT):
            tail = f" The end of its output:\n{event.tail}" if event.tail else " It had no output."
            return f"[{FROM}: background process {event.process_id} (`{event.command}`) ended: {event.reason}.{tail}]"
        case ProcessExpired():
            return (
                f"[{FROM}: background process {event.process_id} (`{event.command}`) still runs after "
                f"{duration(event.ttl_seconds)}, its time to live: {event.evidence}. End it if it is not needed.]"
            )
        case Renewed() if event.processes:
            names = ", ".join(event.processes)
            return (
                f"[{FROM}: this session took the place of {event.previous_id} ({event.reason}). Background processes of "
                f"that one may still run: {names}. The process tool lists them with all=true.]"
            )
        case ProcessesReceived():
            return f"[{FROM}: background processes {', '.join(event.processes)} belong to this session now.]"
        case _:
            return None


class Notes:
    """The notes that wait for the results of calls."""

    def __init__(self) -> None:
        self._owed: set[str] = set()
        self._waiting: list[tuple[Entry, str]] = []

    def after(self, entry: Entry, last: Message | None) -> Iterator[Message]:
        """The notes to be shown behind an event; `last` is the message before them."""
        event = entry.event
        if isinstance(event, ModelSaid):
            self._owed = {part.id for part in event.parts if isinstance(part, ToolCall)}
        elif isinstance(event, ToolEnded):
            self._owed.discard(event.call_id)
        elif isinstance(event, Rewound):
            self._owed.clear()
            self._waiting = [(one, text) for one, text in self._waiting if one.seq <= event.to_seq]
        elif (text := told(entry)) is not None:
            self._waiting.append((entry, text))
        if self._owed:
            return
        for one, text in self._waiting:
            seq, turn_id = (one.seq, "") if last is None else (max(one.seq, last.seq), last.turn_id)
            yield Message(seq, "user", (Text(text),), one.at, turn_id=turn_id)
        self._waiting = []
