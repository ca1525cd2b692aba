"""What the model is shown: a view of the log, kept up event by event, so that a long session costs no more per turn.

Nothing here is ever lost: a compaction changes what is shown, and undoing it shows again what was shown before. The
part that has not changed stays the same from request to request, byte for byte: providers' caches hit.

How large the context is, is known from what the provider counted for the last reply, and guessed only for what came
since. After a compaction the size that was worked out for it stands in for the count.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence

import msgspec

from holdfast.engine.notes import Notes
from holdfast.engine.view import find, place_behind, show
from holdfast.engine.weight import Scales, Weight
from holdfast.model.asking import Request, ToolSpec
from holdfast.model.entry import Entry
from holdfast.model.event import (
    Compacted,
    CompactionFailed,
    CompactionUndone,
    Event,
    MessagePinned,
    MessageUnpinned,
    ModelChanged,
    ModelSaid,
    ProcessEnded,
    ProcessesReceived,
    ProcessExpired,
    Renewed,
    Rewound,
    SessionOpened,
    ToolEnded,
    TurnEnded,
    UserSaid,
)
from holdfast.model.message import Message, ToolCall
from holdfast.model.session import as_message

MESSAGES = {UserSaid, ModelSaid, ToolEnded}
TELLING = {
    SessionOpened,
    Compacted,
    CompactionFailed,
    CompactionUndone,
    Rewound,
    MessagePinned,
    MessageUnpinned,
    ModelChanged,
    TurnEnded,
}
"""Kinds of events that carry no message and still change what is shown, or what is known of it."""
NOTED = {ModelSaid, ToolEnded, Rewound, ProcessEnded, ProcessExpired, ProcessesReceived, Renewed}
"""Kinds of events that bring a note, or on which one that waits may depend."""


class Try(msgspec.Struct, frozen=True):
    """The newest attempt to compact. Without a code it succeeded; `tokens` is how large the context was after it."""

    turn_id: str
    tokens: int
    code: str = ""
    reason: str = ""
    refused_tokens: int = 0
    count: int = 1
    """Which attempt of its turn it was."""


class Placed(msgspec.Struct, frozen=True):
    """A compaction in its place in the log."""

    seq: int
    at: int
    event: Compacted


class Context:
    """The messages that count, in order, how they are shown, and what else asking needs to know of the log."""

    def __init__(self, entries: Iterable[Entry] = ()) -> None:
        self._messages: list[Message] = []
        self._view: list[Message] = []
        self._stack: list[Placed] = []
        self._notes = Notes()
        self._said: list[int] = []
        """Which messages are words of the user; others in that role are notes."""
        self._pinned_at: dict[int, int] = {}
        self._unpinned_at: dict[int, int] = {}
        self._scales = Scales()
        self.system: str | None = None
        """The session's own system text, if it was opened with one."""
        self.call_ids: set[str] = set()
        """Every call the model has ever made here."""
        self.last_try: Try | None = None
        self.refused: str | None = None
        """What the provider said when it refused the context as it is now."""
        self.refused_tokens = 0
        """The smallest size that the model of this session has refused; 0 if it has not."""
        for entry in entries:
            self.add(entry)

    @property
    def messages(self) -> Sequence[Message]:
        """All that counts, shown or not."""
        return self._messages

    @property
    def view(self) -> Sequence[Message]:
        """What is shown."""
        return self._view

    @property
    def compaction(self) -> Placed | None:
        """The one that is in force."""
        return self._stack[-1] if self._stack else None

    @property
    def compactions(self) -> Sequence[Placed]:
        """Those that have not been undone, oldest first."""
        return self._stack

    @property
    def epoch(self) -> int:
        return self._stack[-1].event.epoch if self._stack else 0

    @property
    def upto_seq(self) -> int:
        """The last event that is not shown any more."""
        return self._stack[-1].event.upto_seq if self._stack else 0

    @property
    def newest(self) -> int | None:
        """The place of the newest words of the user, if there are any."""
        return find(self._messages, self._said[-1]) if self._said else None

    @property
    def pins(self) -> set[int]:
        """What a person has pinned."""
        return {seq for seq, at in self._pinned_at.items() if at > self._unpinned_at.get(seq, 0)}

    def add(self, entry: Entry) -> None:
        """Take one more event in."""
        event = entry.event
        if type(event) in MESSAGES:
            self._hear(entry)
        elif type(event) in TELLING:
            self._take_in(entry, event)
        if type(event) in NOTED:
            for note in self._notes.after(entry, self._messages[-1] if self._messages else None):
                self._messages.append(note)
                self._view.append(note)

    def _hear(self, entry: Entry) -> None:
        event = entry.event
        if isinstance(event, ModelSaid):
            self._drop_superseded(event.turn_id)
            self.call_ids.update(part.id for part in event.parts if isinstance(part, ToolCall))
        message = as_message(entry)
        assert message is not None, "that is what these kinds carry"
        self._messages.append(message)
        self._view.append(message)
        if isinstance(event, UserSaid):
            self._said.append(entry.seq)
        if isinstance(event, ModelSaid) and event.usage.tokens_in:
            counted = event.usage.tokens_in + event.usage.tokens_out
            self._scales.know(len(self._view), counted, is_counted=True)

    def _take_in(self, entry: Entry, event: Event) -> None:
        match event:
            case SessionOpened():
                self.system = event.system
            case Compacted():
                is_counted = self._scales.is_counted
                self._stack.append(Placed(entry.seq, entry.at, event))
                self._show_anew()
                if event.tokens_after:
                    self._scales.know(len(self._view), event.tokens_after, is_counted=is_counted)
                self._note(Try(event.turn_id, event.tokens_after, refused_tokens=event.refused_tokens))
            case CompactionFailed():
                self._note(Try(event.turn_id, event.tokens, event.code, event.reason, event.refused_tokens))
            case CompactionUndone():
                self._undo(lambda placed: placed.event.epoch > event.epoch)
            case Rewound():
                self._rewind(event.to_seq)
            case MessagePinned():
                self._pinned_at[event.seq] = entry.seq
                self._show_pins_anew()
            case MessageUnpinned():
                self._unpinned_at[event.seq] = entry.seq
                self._show_pins_anew()
            case ModelChanged():
                self._scales.forget_counts()
                self.refused_tokens, self.last_try = 0, None
            case TurnEnded():
                self.refused = None
            case _:
                raise AssertionError(f"{type(event).__name__} is not among those that tell something")

    def _note(self, tried: Try) -> None:
        before = self.last_try
        if before is not None and before.turn_id == tried.turn_id:
            tried = msgspec.structs.replace(tried, count=before.count + 1)
        self.last_try, self.refused = tried, None
        if tried.refused_tokens:
            self.refused_tokens = min(tried.refused_tokens, self.refused_tokens or tried.refused_tokens)

    def _undo(self, undone: Callable[[Placed], bool]) -> None:
        had = len(self._stack)
        while self._stack and undone(self._stack[-1]):
            self._stack.pop()
        if len(self._stack) < had:
            self._show_anew()

    def _rewind(self, to_seq: int) -> None:
        """Drop what was said after the event, and a compaction that stands for some of it."""
        del self._messages[place_behind(self._messages, to_seq) :]
        del self._said[bisect_right(self._said, to_seq) :]
        self._undo(lambda placed: placed.event.upto_seq > to_seq)
        known = self._scales.known
        self._show_anew()
        self._scales.cut(known, len(self._view))

    def undone_by(self, to_seq: int) -> list[CompactionUndone]:
        """What has to be written down before everything after `to_seq` is taken back: which compactions go with it."""
        standing = [placed for placed in self._stack if placed.event.upto_seq <= to_seq]
        if len(standing) == len(self._stack):
            return []
        return [CompactionUndone(epoch=standing[-1].event.epoch if standing else 0)]

    def _show_anew(self) -> None:
        self._scales.forget()
        if not self._stack:
            self._view = list(self._messages)
            return
        top = self._stack[-1]
        pinned = {seq for seq in top.event.pinned if self._unpinned_at.get(seq, 0) < top.seq}
        pinned |= {seq for seq in self.pins if self._pinned_at[seq] > top.seq}
        self._view = show(self._messages, top.event, pinned, top.at)

    def _show_pins_anew(self) -> None:
        if self._stack:
            self._show_anew()

    def weigh(self, frame: int) -> Weight:
        """How large the context is. `frame` is what the system text and the tools are guessed to take."""
        return self._scales.weigh(self._view, frame)

    def guess(self) -> int:
        """What the messages in view are guessed to take, whatever anybody has counted."""
        return self._scales.guess(self._view)

    def _drop_superseded(self, turn_id: str) -> None:
        """A reply that was cut off and then asked for again in the same turn does not count: the whole one does."""
        place = _cut_off(self._messages, turn_id)
        if place is None:
            return
        del self._messages[place]
        shown = _cut_off(self._view, turn_id)
        if shown is not None:
            del self._view[shown]
            self._scales.forget_guess()

    def request(self, turn_id: str, *, model: str, system: str, tools: tuple[ToolSpec, ...]) -> Request:
        """The request for the next reply of a turn."""
        place = _cut_off(self._view, turn_id)
        shown = self._view if place is None else self._view[:place] + self._view[place + 1 :]
        return Request(model=model, system=self.system or system, messages=tuple(shown), tools=tools)


def _cut_off(messages: Sequence[Message], turn_id: str) -> int | None:
    """Where the cut-off reply of the turn stands, if its last reply was one."""
    for place in range(len(messages) - 1, -1, -1):
        message = messages[place]
        if message.turn_id != turn_id:
            return None
        if message.role == "assistant":
            return place if message.partial else None
    return None
