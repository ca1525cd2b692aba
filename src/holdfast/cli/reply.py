"""A turn as a person sees it: words as they come, tools as they run, and how it ended."""

import sys
from collections.abc import AsyncIterator
from typing import TextIO

import msgspec

from holdfast.cli.spinner import Spinner
from holdfast.engine.bus import Live
from holdfast.interop.visible import one_line, visible
from holdfast.model.entry import Entry
from holdfast.model.event import (
    ApprovalAsked,
    Compacted,
    CompactionFailed,
    ModelSaid,
    Recovered,
    ToolEnded,
    ToolStarted,
    TurnEnded,
)
from holdfast.model.message import ToolCall, text_of

ARGUMENTS_SHOWN = 100


class Outcome(msgspec.Struct, frozen=True):
    """What a turn came to: its last words, where the log then stood, and how it ended."""

    text: str
    seq: int
    ended: TurnEnded
    compacted: bool = False
    """Whether its context was compacted on the way."""


async def until_words(items: AsyncIterator[Entry | Live], spinner: Spinner) -> AsyncIterator[Entry | Live]:
    """The same items; the spinner stops when there is something to see."""
    async for item in items:
        if isinstance(item, Live) or note_of(item) is not None:
            spinner.stop()
        yield item


async def show(items: AsyncIterator[Entry | Live], *, words: TextIO | None, notes: TextIO | None) -> Outcome:
    """Follow a turn. Words go to one stream while they come, what the tools do to another; None for neither."""
    text = ""
    compacted = False
    line = _Line(words)
    async for item in items:
        if isinstance(item, Live):
            line.write(item)
            continue
        if isinstance(item.event, ModelSaid):
            text = text_of(item.event.parts)
            line.end()
        compacted |= isinstance(item.event, Compacted)
        told = note_of(item)
        if told and notes is not None:
            print(told, file=notes, flush=True)
        if isinstance(item.event, TurnEnded):
            line.end()
            return Outcome(text, item.seq, item.event, compacted)
    raise AssertionError("a turn is followed to its end")


class _Line:
    """The words of the reply in the making."""

    def __init__(self, stream: TextIO | None) -> None:
        self._stream = stream
        self._open = False

    def write(self, item: Live) -> None:
        if self._stream is None or item.kind == "reasoning":
            return
        if item.kind == "restarted":
            self.end()
            self._stream.write(f"[the reply broke off and begins anew: {one_line(item.text)}]\n")
        else:
            self._stream.write(visible(item.text))
            self._open = True
        self._stream.flush()

    def end(self) -> None:
        if self._stream is not None and self._open:
            self._stream.write("\n")
            self._stream.flush()
        self._open = False


def note_of(entry: Entry) -> str | None:
    """What a person should know of an event besides the words."""
    match entry.event:
        case Compacted(tokens_before=before, tokens_after=after, epoch=epoch):
            return f"[the context was compacted: {before:,} → {after:,} tokens, epoch {epoch}; nothing is lost]"
        case CompactionFailed(reason=reason):
            return f"[the context could not be compacted: {one_line(reason)}]"
        case ModelSaid(parts=parts):
            calls = [part for part in parts if isinstance(part, ToolCall)]
            return (
                "\n".join(f"→ {one_line(f'{call.name} {call.arguments}')[:ARGUMENTS_SHOWN]}" for call in calls) or None
            )
        case ToolStarted(name=name, attempt=attempt) if attempt > 1:
            return f"  {name}: running it once more, as it changes nothing"
        case ToolEnded(name=name, outcome="unknown"):
            return f"! {name}: outcome unknown; it may or may not have taken effect"
        case ToolEnded(name=name, outcome=outcome, millis=millis):
            return f"← {name}: {outcome} ({millis / 1000:.1f} s)"
        case ApprovalAsked(question=question):
            return f"? {one_line(question)}: waiting for somebody to allow it"
        case Recovered():
            return taken_up(entry.event)
        case _:
            return None


def taken_up(event: Recovered) -> str:
    """That a turn goes on, or is closed, which another worker left open when it died or went."""
    return f"! the turn was taken up again ({event.action}): {one_line(event.evidence)}"


def complaint(ended: TurnEnded) -> str | None:
    """Why a turn that did not end well ended, in a sentence."""
    if ended.outcome == "done":
        return None
    return f"the turn {'was ' if ended.outcome in ('interrupted', 'cancelled') else ''}{ended.outcome}: {ended.reason or 'no reason was given'}"


def streams() -> tuple[TextIO | None, TextIO | None]:
    """Where live words and notes go: to a terminal, and nowhere else."""
    return (sys.stdout if sys.stdout.isatty() else None), (sys.stderr if sys.stderr.isatty() else None)
