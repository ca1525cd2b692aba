"""Prints a turn: text as it streams, tools as they run, and how the turn ended."""

import sys
from collections.abc import AsyncIterator
from typing import TextIO

import msgspec

from holdfast.cli.progress import Spinner
from holdfast.engine.goals.notice import event_notice
from holdfast.engine.streaming.bus import LiveText
from holdfast.engine.turn.approval import TIME_LIMIT
from holdfast.engine.turn.refused_input import REFUSED_NOTICE
from holdfast.model.entry import Entry
from holdfast.model.event import (
    ApprovalAnswered,
    ApprovalAsked,
    Compacted,
    CompactionFailed,
    InputRefused,
    InstructionsLoaded,
    ModelSaid,
    Recovered,
    ToolEnded,
    ToolStarted,
    TurnEnded,
)
from holdfast.model.message import Image, ToolCall, text_of
from holdfast.model.sanitize import one_line, visible

ARGUMENTS_SHOWN = 100


class TurnResult(msgspec.Struct, frozen=True):
    """The result of a turn: the reply, the last sequence number, and how the turn ended."""

    text: str
    seq: int
    ended: TurnEnded
    compacted: bool = False
    """Whether the context was compacted during the turn."""
    unanswered: tuple[str, ...] = ()
    """Tools that were not run because nobody answered the approval question in time."""


async def stop_spinner_at_output(
    items: AsyncIterator[Entry | LiveText], spinner: Spinner
) -> AsyncIterator[Entry | LiveText]:
    """Pass the items through, and stop the spinner when there is something to show."""
    async for item in items:
        if isinstance(item, LiveText) or describe_event(item) is not None:
            spinner.stop()
        yield item


async def show(
    items: AsyncIterator[Entry | LiveText],
    *,
    text_stream: TextIO | None,
    note_stream: TextIO | None,
    to_the_end: bool = False,
) -> TurnResult:
    """Follow a turn to its end. Live text goes to one stream, notes about tools to the other; None prints nothing.

    With `to_the_end`, follow all turns of the items; the result is that of the last one.
    """
    text = ""
    result: TurnResult | None = None
    compacted = False
    unanswered = _Unanswered()
    reply = _ReplyWriter(text_stream)
    async for item in items:
        if isinstance(item, LiveText):
            reply.write(item)
            continue
        if isinstance(item.event, ModelSaid):
            text = text_of(item.event.parts)
            reply.end_line()
        compacted |= isinstance(item.event, Compacted)
        unanswered.add(item)
        note = describe_event(item)
        if note and note_stream is not None:
            print(note, file=note_stream, flush=True)
        if isinstance(item.event, TurnEnded):
            reply.end_line()
            result = TurnResult(text, item.seq, item.event, compacted, tuple(unanswered.tools))
            if not to_the_end:
                return result
    assert result is not None, "a turn ends with TurnEnded"
    return result


class _Unanswered:
    """Collects calls that were denied only because nobody answered in time."""

    def __init__(self) -> None:
        self._asked: set[str] = set()
        self._answered: set[str] = set()
        self.tools: list[str] = []

    def add(self, entry: Entry) -> None:
        match entry.event:
            case ApprovalAsked(call_id=call_id):
                self._asked.add(call_id)
            case ApprovalAnswered(call_id=call_id, by=by) if by != TIME_LIMIT:
                self._answered.add(call_id)
            case ToolEnded(call_id=call_id, name=name, outcome="denied"):
                if call_id in self._asked - self._answered:
                    self.tools.append(name)


class _ReplyWriter:
    """Writes the reply while it streams."""

    def __init__(self, stream: TextIO | None) -> None:
        self._stream = stream
        self._open = False

    def write(self, item: LiveText) -> None:
        if self._stream is None or item.kind == "reasoning":
            return
        if item.kind in ("retrying", "progress"):
            self.end_line()
            self._stream.write(f"[{one_line(item.text)}]\n")
        elif item.kind == "restarted":
            self.end_line()
            self._stream.write(f"[the reply was cut off and starts again: {one_line(item.text)}]\n")
        else:
            self._stream.write(visible(item.text))
            self._open = True
        self._stream.flush()

    def end_line(self) -> None:
        if self._stream is not None and self._open:
            self._stream.write("\n")
            self._stream.flush()
        self._open = False


def describe_event(entry: Entry) -> str | None:
    """The note for an event, apart from the text of the reply; None if there is none."""
    match entry.event:
        case Compacted(tokens_before=before, tokens_after=after, epoch=epoch):
            return f"[context compacted: {before:,} → {after:,} tokens, epoch {epoch}; the log is unchanged]"
        case CompactionFailed(reason=reason):
            return f"[compaction failed: {one_line(reason)}]"
        case ModelSaid(parts=parts):
            calls = [part for part in parts if isinstance(part, ToolCall)]
            return (
                "\n".join(f"→ {one_line(f'{call.name} {call.arguments}')[:ARGUMENTS_SHOWN]}" for call in calls) or None
            )
        case ToolStarted(name=name, attempt=attempt) if attempt > 1:
            return f"  {name}: running it again (read-only)"
        case ToolEnded(name=name, outcome="unknown"):
            return f"! {name}: outcome unknown; it may or may not have taken effect"
        case ToolEnded(name=name, outcome="denied"):
            return f"← {name}: denied, not run"
        case ToolEnded(name=name, outcome=outcome, millis=millis, parts=parts):
            is_image = any(isinstance(part, Image) and part.saved_as for part in parts)
            where = f": {one_line(text_of(parts))}" if is_image else ""
            return f"← {name}: {outcome} ({millis / 1000:.1f} s){where}"
        case InputRefused():
            return REFUSED_NOTICE
        case InstructionsLoaded() if entry.event.notices:
            return instruction_notes(entry.event)
        case ApprovalAsked(question=question):
            return f"? {one_line(question)}: waiting for approval"
        case Recovered():
            return recovery_note(entry.event)
        case _:
            return event_notice(entry.event)


def instruction_notes(event: InstructionsLoaded) -> str:
    """What was loaded into the system text, or changed in it: one line each."""
    return "\n".join(f"[{event.part}: {one_line(notice)}]" for notice in event.notices)


def recovery_note(event: Recovered) -> str:
    """The note that a turn which another worker left open was resumed or closed."""
    done = "resumed" if event.action == "continue" else "closed"
    return f"! the unfinished turn was {done}: {one_line(event.evidence)}"


def failure_message(ended: TurnEnded) -> str | None:
    """Why a turn failed or was interrupted; None if it ended well."""
    if ended.outcome == "done":
        return None
    return f"the turn {'was ' if ended.outcome in ('interrupted', 'cancelled') else ''}{ended.outcome}: {ended.reason or 'no reason given'}"


def streams() -> tuple[TextIO | None, TextIO | None]:
    """The streams for live text and notes; None for a stream that is not a terminal."""
    return (sys.stdout if sys.stdout.isatty() else None), (sys.stderr if sys.stderr.isatty() else None)
