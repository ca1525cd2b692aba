"""The context of a session: a view of the log, updated event by event, so that a long session costs no more per turn.

Nothing is lost: a compaction changes the view, and undoing it restores the previous view. The unchanged part stays
identical from request to request, byte for byte, so that providers' prompt caches hit.

Memory is limited: `trim` drops messages that a summary has replaced, and `unload` all that the log can restore. An
event that refers to a dropped message, such as an undo, sets `is_incomplete`: then the context must be built again.

The size is what the provider counted for the last reply, plus an estimate of what was added since. After a compaction,
the size computed for it replaces the count.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence

import msgspec

from holdfast.engine.context.logged_compaction import CompactionAttempt, LoggedCompaction
from holdfast.engine.context.pins import Pins
from holdfast.engine.context.plan_history import PlanHistory
from holdfast.engine.context.removed_content import REMOVED, refusal_notice, remove_content
from holdfast.engine.context.system_notes import NOTE_EVENTS, PendingNotes
from holdfast.engine.context.tokens import TokenCounter, TokenEstimate
from holdfast.engine.context.trimming import MESSAGE_BYTES, DroppedMessages, count_bytes, replaced_upto
from holdfast.engine.context.view import build_view, find_index, index_after
from holdfast.model.entry import Entry
from holdfast.model.event import (
    Compacted,
    CompactionFailed,
    CompactionUndone,
    Event,
    GoalSet,
    InputRefused,
    InstructionPart,
    InstructionsLoaded,
    MessagePinned,
    MessageRemoved,
    MessageUnpinned,
    ModelChanged,
    ModelSaid,
    PlanChanged,
    Rewound,
    SessionOpened,
    SystemChanged,
    ToolEnded,
    TurnEnded,
    UserSaid,
)
from holdfast.model.goal import MOVING, OPEN, GoalState, next_state
from holdfast.model.message import Message, MessageSnapshot, Outcome, ToolCall, text_bytes
from holdfast.model.plan import PlanItem
from holdfast.model.provider import RequestCache
from holdfast.model.session import as_message

MESSAGE_EVENTS = {UserSaid, ModelSaid, ToolEnded}
STATE_EVENTS = {
    SessionOpened,
    Compacted,
    CompactionFailed,
    CompactionUndone,
    Rewound,
    MessagePinned,
    MessageUnpinned,
    MessageRemoved,
    ModelChanged,
    SystemChanged,
    InstructionsLoaded,
    InputRefused,
    PlanChanged,
    TurnEnded,
}
"""Events without a message that still change the view or its known size."""
EVENTS_WITH_REFERENCES = {Compacted, CompactionUndone, Rewound, MessagePinned, InputRefused, MessageRemoved}
"""Events that can make the view show messages that it did not show before."""
CALL_ID_BYTES = 100


class Context:
    """The messages in order, the view of them, and everything else that a model request needs from the log."""

    def __init__(self, entries: Iterable[Entry] = ()) -> None:
        self._messages: list[Message] = []
        self._view: list[Message] = []
        self._compactions: list[LoggedCompaction] = []
        self._plans = PlanHistory()
        self._notes = PendingNotes()
        self._user_seqs: list[int] = []
        """The numbers of messages written by the user; other messages in that role are notes."""
        self._pins = Pins()
        self._counter = TokenCounter()
        self._message_bytes = 0
        self._dropped = DroppedMessages()
        self.is_incomplete = False
        """Whether an event has referred to a message that was dropped."""
        self.request_cache = RequestCache()
        self.system: str | None = None
        """The latest system text from a client; None for the built-in one."""
        self.instructions: dict[InstructionPart, InstructionsLoaded] = {}
        """The newest recorded event of each part of the instructions."""
        self.last_said: UserSaid | None = None
        """The newest message of the log, without its content."""
        self.call_ids: set[str] = set()
        """Every call that the model made in this session."""
        self._goal_text = ""
        self._goal_state: GoalState = ""
        self.last_attempt: CompactionAttempt | None = None
        self.refused: str | None = None
        """The provider's message when it rejected the current context."""
        self.refused_tokens = 0
        """The smallest size that the session's model rejected; 0 if none."""
        for entry in entries:
            self.add(entry)

    @property
    def messages(self) -> Sequence[Message]:
        """All messages, in view or not."""
        return self._messages

    @property
    def memory_bytes(self) -> int:
        """An estimate of the memory in use, for the limit of the session cache."""
        summaries = sum(len(logged.event.summary) for logged in self._compactions)
        numbers = CALL_ID_BYTES * len(self.call_ids) + 40 * len(self._user_seqs)
        instructions = sum(len(event.text) for event in self.instructions.values())
        return MESSAGE_BYTES + self._message_bytes + self.request_cache.size + summaries + numbers + instructions

    @property
    def view(self) -> Sequence[Message]:
        """The messages in view."""
        return self._view

    @property
    def compaction(self) -> LoggedCompaction | None:
        """The compaction in effect."""
        return self._compactions[-1] if self._compactions else None

    @property
    def compactions(self) -> Sequence[LoggedCompaction]:
        """The compactions that were not undone, oldest first."""
        return self._compactions

    @property
    def epoch(self) -> int:
        return self._compactions[-1].event.epoch if self._compactions else 0

    @property
    def upto_seq(self) -> int:
        """The last event that the summary replaced."""
        return self._compactions[-1].event.upto_seq if self._compactions else 0

    def plan_at(self, seq: int) -> tuple[PlanItem, ...]:
        """The session's plan after the event, which is not before the last message that was dropped."""
        return self._plans.at(seq)

    @property
    def goal(self) -> str:
        """The text of the session's goal, unless it has ended."""
        return self._goal_text if self._goal_state in OPEN else ""

    @property
    def newest(self) -> int | None:
        """The index of the newest user message, if any."""
        return find_index(self._messages, self._user_seqs[-1]) if self._user_seqs else None

    @property
    def pins(self) -> set[int]:
        """The numbers of pinned messages."""
        return self._pins.current

    def add(self, entry: Entry) -> None:
        """Apply one more event."""
        event = entry.event
        if type(event) in MESSAGE_EVENTS:
            self._add_message(entry)
        elif type(event) in STATE_EVENTS:
            self._apply(entry, event)
            if self._dropped.upto and type(event) in EVENTS_WITH_REFERENCES:
                self.is_incomplete = self.is_incomplete or self._lacks_message()
        if type(event) in MOVING and (self._goal_state or type(event) is GoalSet):
            self._goal_state = next_state(self._goal_state, event)
            self._goal_text = event.text if isinstance(event, GoalSet) else self._goal_text
        if type(event) in NOTE_EVENTS:
            for note in self._notes.after(entry, self._messages[-1] if self._messages else None):
                self._messages.append(note)
                self._view.append(note)

    def _add_message(self, entry: Entry) -> None:
        event = entry.event
        if isinstance(event, ModelSaid):
            self._drop_superseded(event.turn_id)
            self.call_ids.update(part.id for part in event.parts if isinstance(part, ToolCall))
        message = as_message(entry)
        assert message is not None, "every event of these kinds has a message"
        self._messages.append(message)
        self._view.append(message)
        self._message_bytes += MESSAGE_BYTES + text_bytes(message.parts)
        if isinstance(event, UserSaid):
            self._user_seqs.append(entry.seq)
            self.last_said = msgspec.structs.replace(event, parts=())
        if isinstance(event, ModelSaid) and event.usage.tokens_in:
            counted = event.usage.tokens_in + event.usage.tokens_out
            self._counter.record(len(self._view), counted, is_counted=True)

    def _apply(self, entry: Entry, event: Event) -> None:
        match event:
            case SessionOpened():
                self.system = event.system
            case SystemChanged():
                self.system = event.system or None
            case InstructionsLoaded():
                self.instructions[event.part] = event
            case InputRefused():
                refused = (message for message in self._messages if message.seq in event.seqs)
                self._remove(set(event.seqs), refusal_notice(event.reason, refused), "failed")
            case MessageRemoved():
                self._remove({event.seq}, REMOVED)
            case Compacted():
                is_counted = self._counter.is_counted
                self._compactions.append(LoggedCompaction(entry.seq, entry.at, event))
                self._replace_view()
                if event.tokens_after:
                    self._counter.record(len(self._view), event.tokens_after, is_counted=is_counted)
                self._record_attempt(
                    CompactionAttempt(event.turn_id, event.tokens_after, refused_tokens=event.refused_tokens)
                )
            case CompactionFailed():
                self._record_attempt(
                    CompactionAttempt(event.turn_id, event.tokens, event.code, event.reason, event.refused_tokens)
                )
            case CompactionUndone():
                self._undo(lambda logged: logged.event.epoch > event.epoch)
            case Rewound():
                self._rewind(event.to_seq)
            case PlanChanged():
                self._plans.add(entry.seq, event.items)
            case MessagePinned():
                self._pins.pin(event.seq, entry.seq)
                self._rebuild_view_if_compacted()
            case MessageUnpinned():
                self._pins.unpin(event.seq, entry.seq)
                self._rebuild_view_if_compacted()
            case ModelChanged():
                self._counter.forget_counts()
                self.refused_tokens, self.last_attempt = 0, None
            case TurnEnded():
                self.refused = None
            case _:
                raise AssertionError(f"{type(event).__name__} is not handled by the context")

    def _record_attempt(self, attempt: CompactionAttempt) -> None:
        before = self.last_attempt
        if before is not None and before.turn_id == attempt.turn_id:
            attempt = msgspec.structs.replace(attempt, count=before.count + 1)
        self.last_attempt, self.refused = attempt, None
        if attempt.refused_tokens:
            self.refused_tokens = min(attempt.refused_tokens, self.refused_tokens or attempt.refused_tokens)

    def _undo(self, undone: Callable[[LoggedCompaction], bool]) -> None:
        count = len(self._compactions)
        while self._compactions and undone(self._compactions[-1]):
            self._compactions.pop()
        if len(self._compactions) < count:
            self._replace_view()

    def _rewind(self, to_seq: int) -> None:
        """Drop the messages after the event, and every compaction that covers one of them."""
        del self._messages[index_after(self._messages, to_seq) :]
        del self._user_seqs[bisect_right(self._user_seqs, to_seq) :]
        self._plans.rewind(to_seq)
        self._undo(lambda logged: logged.event.upto_seq > to_seq)
        known = self._counter.known
        self._rebuild_view()
        self._counter.keep_counts(known, len(self._view))

    def _remove(self, gone: set[int], notice: str, outcome: Outcome | None = None) -> None:
        """Remove these messages, except for calls, and replace the results by the notice. The counts before them stay valid."""
        self._messages = remove_content(self._messages, gone, notice, outcome)
        self._user_seqs = [seq for seq in self._user_seqs if seq not in gone]
        known = self._counter.known
        self._rebuild_view()
        self._counter.keep_counts(known, index_after(self._view, min(gone, default=1) - 1))

    def undone_by(self, to_seq: int) -> list[CompactionUndone]:
        """The events to commit before a rewind to `to_seq`: the compactions that it undoes."""
        remaining = [logged for logged in self._compactions if logged.event.upto_seq <= to_seq]
        if len(remaining) == len(self._compactions):
            return []
        return [CompactionUndone(epoch=remaining[-1].event.epoch if remaining else 0)]

    def _replace_view(self) -> None:
        """Show other messages: nothing that was rendered before is of use."""
        self._rebuild_view()
        self.request_cache = RequestCache()

    def _rebuild_view(self) -> None:
        self._counter.forget()
        self._view = self._current_view()

    def _current_view(self) -> list[Message]:
        if not self._compactions:
            return list(self._messages)
        top = self._compactions[-1]
        return build_view(self._messages, top.event, self.shown_pins, top.at)

    @property
    def shown_pins(self) -> set[int]:
        """Messages before the summary that are shown: those that the newest compaction kept, and those pinned since."""
        if not self._compactions:
            return set()
        top = self._compactions[-1]
        return self._pins.shown_after(top.event, top.seq)

    @property
    def needed_from(self) -> int:
        """The event from which on the log is needed to `reload` the messages."""
        return max(1, self._dropped.upto)

    def trim(self) -> None:
        """Drop the messages that a summary of a model has replaced, except pinned ones and the newest of the user."""
        upto = self._replaced_upto()
        if upto > self._dropped.upto and not self.is_incomplete:
            self._messages = self._dropped.drop(self._messages, upto, self._needed())
            self._plans.trim(upto)
            self._message_bytes = count_bytes(self._messages)

    def unload(self) -> None:
        """Drop every message that `reload` can read from the log, and what was rendered from them."""
        self._messages = self._messages[: index_after(self._messages, self._dropped.upto)]
        self._view = []
        self.request_cache = RequestCache()
        self._message_bytes = count_bytes(self._messages)

    def reload(self, other: "Context") -> None:
        """Restore the messages after `unload`, from the context of the log from `needed_from` on to where this one ends."""
        self._messages += other._messages[index_after(other._messages, self._dropped.upto) :]
        self._view = self._current_view()
        self._message_bytes = count_bytes(self._messages)

    def _replaced_upto(self) -> int:
        return replaced_upto([logged.event for logged in self._compactions]) if self._compactions else 0

    def _needed(self) -> set[int]:
        """The numbers of old messages that may be shown again."""
        pinned = self._compactions[-1].event.pinned if self._compactions else ()
        return {*self.pins, *pinned, *self._user_seqs[-1:]}

    def _lacks_message(self) -> bool:
        """Whether a message that was dropped is needed again."""
        is_shown_again = self._replaced_upto() < self._dropped.upto
        return is_shown_again or self._dropped.includes_any(self._needed(), self._messages)

    def _rebuild_view_if_compacted(self) -> None:
        if self._compactions:
            self._rebuild_view()

    def estimate_size(self, frame: int) -> TokenEstimate:
        """The size of the context. `frame` is the estimated size of the system text and the tools."""
        return self._counter.estimate(self._view, frame)

    def estimate_messages(self) -> int:
        """The estimated size of the messages in view, without provider counts."""
        return self._counter.estimate_view(self._view)

    def _drop_superseded(self, turn_id: str) -> None:
        """Drop a reply that was cut off if the same turn then got the complete one."""
        index = _find_cut_off(self._messages, turn_id)
        if index is None:
            return
        del self._messages[index]
        shown = _find_cut_off(self._view, turn_id)
        if shown is not None:
            self._view = self._view[:shown] + self._view[shown + 1 :]  # requests have snapshots of the list
            self._counter.forget_estimate()

    def visible_to(self, turn_id: str) -> MessageSnapshot:
        """The messages in view for the next reply of a turn: without a reply of the turn that was cut off."""
        index = _find_cut_off(self._view, turn_id)
        return MessageSnapshot(self._view if index is None else self._view[:index] + self._view[index + 1 :])


def _find_cut_off(messages: Sequence[Message], turn_id: str) -> int | None:
    """The index of the turn's cut-off reply, if its last reply was cut off."""
    for index in range(len(messages) - 1, -1, -1):
        message = messages[index]
        if message.turn_id != turn_id:
            return None
        if message.role == "assistant":
            return index if message.partial else None
    return None
