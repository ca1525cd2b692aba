"""Converts the events of a log, and streamed text, to updates for the editor.

A replay and a live view use the same code: after every chunk of a message is joined, both give the same updates. Streamed
text is shown only once it is durable, so what was shown before a crash is the beginning of what a replay shows. A model's
thoughts are the exception: those of a reply that was cut off are not kept.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from acp import helpers
from acp.schema import SessionInfoUpdate, UsageUpdate

from holdfast.acp import content, tool_calls
from holdfast.acp.old_texts import OldText
from holdfast.engine.goals.notice import event_notice
from holdfast.engine.streaming.bus import LiveText
from holdfast.engine.turn.refused_input import REFUSED_NOTICE
from holdfast.model.entry import Entry
from holdfast.model.event import (
    Compacted,
    CompactionFailed,
    InputRefused,
    ModeChanged,
    ModelSaid,
    PlanChanged,
    Quarantined,
    ReplyRestarted,
    Rewound,
    Titled,
    ToolEnded,
    ToolStarted,
    TurnEnded,
    UserSaid,
)
from holdfast.model.message import Reasoning, ToolCall, text_of
from holdfast.model.plan import PlanItem

CUT_OFF = "\n\n[cut off here]"
RESTARTED = "\n\n[the reply was cut off and starts again]\n\n"
Update = Any
"""One of the protocol's session updates."""


class UpdateRenderer:
    """Follows one session."""

    def __init__(self, workdir: Path) -> None:
        self.window = 0
        """The size of the model's context."""
        self._workdir = workdir
        self._streamed = ""
        self._has_thoughts = False
        self._calls: dict[str, ToolCall] = {}
        self._started: dict[str, int] = {}
        """For each running call, the number of the event that started it."""

    def live(self, item: LiveText) -> Iterator[Update]:
        """The updates for streamed text. Text that is not durable yet is not shown."""
        if item.kind == "text" and item.kept and item.at <= len(self._streamed):
            more = item.text[len(self._streamed) - item.at :]
            self._streamed += more
            if more:
                yield helpers.update_agent_message_text(more)
        elif item.kind == "reasoning" and item.text:
            self._has_thoughts = True
            yield helpers.update_agent_thought_text(item.text)
        elif item.kind == "output":
            yield tool_calls.output(item.turn_id, item.call_id, item.text)
        elif item.kind == "restarted":
            self._streamed = ""

    def find_replacing(self, entry: Entry) -> int | None:
        """If this event is the end of a `write_file` call that succeeded: the number of the event that started the call."""
        event = entry.event
        if not isinstance(event, ToolEnded) or event.outcome != "ok":
            return None
        key = tool_calls.call_id(event.turn_id, event.call_id)
        call = self._calls.get(key)
        return self._started.get(key) if call is not None and call.name == "write_file" else None

    def entry(self, entry: Entry, *, echo: bool = True, old: OldText | None = None) -> Iterator[Update]:
        """The updates for an event. Without `echo`, the user's message is not sent back.

        `old` is the previous text of the file, if the event is the end of a call that replaced one.
        """
        event = entry.event
        match event:
            case UserSaid() if echo:
                yield from map(helpers.update_user_message, content.to_blocks(event.parts))
            case ModelSaid():
                yield from self._reply(event)
            case ReplyRestarted():
                yield from self._rest(event.text)
                yield helpers.update_agent_message_text(RESTARTED)
                self._streamed = ""
            case ToolStarted():
                self._started[tool_calls.call_id(event.turn_id, event.call_id)] = entry.seq
                yield tool_calls.progress(event.turn_id, event.call_id)
            case ToolEnded():
                key = tool_calls.call_id(event.turn_id, event.call_id)
                self._started.pop(key, None)
                yield tool_calls.end(event, self._calls.pop(key, None), self._workdir, old)
            case ModeChanged():
                yield helpers.update_current_mode(event.mode)
            case PlanChanged():
                yield show_plan(event.items)
            case Titled():
                yield SessionInfoUpdate(session_update="session_info_update", title=event.title)
            case TurnEnded() if event.outcome != "done":
                yield _note(
                    f"[the turn was {event.outcome}]"
                    if not event.reason
                    else f"[the turn was {event.outcome}: {event.reason}]"
                )
            case _:
                yield from map(_note, _notices(entry))

    def _reply(self, event: ModelSaid) -> Iterator[Update]:
        thoughts = "".join(part.text for part in event.parts if isinstance(part, Reasoning))
        if thoughts and not self._has_thoughts and not self._streamed:
            yield helpers.update_agent_thought_text(thoughts)
        yield from self._rest(text_of(event.parts))
        self._streamed, self._has_thoughts = "", False
        if event.partial:
            yield helpers.update_agent_message_text(CUT_OFF)
        for part in event.parts:
            if isinstance(part, ToolCall):
                self._calls[tool_calls.call_id(event.turn_id, part.id)] = part
                yield tool_calls.start(event.turn_id, part, self._workdir)
        used = event.usage.tokens_in + event.usage.tokens_out
        if used:
            yield UsageUpdate(session_update="usage_update", used=used, size=max(self.window, used))

    def _rest(self, text: str) -> Iterator[Update]:
        """What was not streamed of a text."""
        if not text.startswith(self._streamed):
            yield helpers.update_agent_message_text(RESTARTED)
            self._streamed = ""
        if more := text[len(self._streamed) :]:
            yield helpers.update_agent_message_text(more)


def show_plan(items: Iterable[PlanItem]) -> Update:
    return helpers.update_plan(helpers.plan_entry(item.content, status=item.status) for item in items)


def _note(text: str) -> Update:
    return helpers.update_agent_message_text(f"\n\n{text}\n\n")


def _notices(entry: Entry) -> Iterator[str]:
    """Notices for the person about events that are not messages."""
    match entry.event:
        case InputRefused():
            yield REFUSED_NOTICE
        case Rewound() as event:
            yield f"[rewound to event {event.to_seq}; the log keeps the rest]"
        case Quarantined() as event:
            yield f"[the turn was quarantined: {event.reason}]"
        case Compacted() as event:
            yield f"[the context was compacted: {event.tokens_before:,} → {event.tokens_after:,} tokens]"
        case CompactionFailed() as event:
            yield f"[the compaction failed: {event.reason}]"
        case _:
            if (notice := event_notice(entry.event)) is not None:
                yield notice
