"""Renders the events of a session: each committed event and each durable piece of text becomes lines that are printed once.

Only unfinished output is redrawn: the current block of the reply, and the running tools. Past events of a resumed session
are rendered the same way, and so are those in every terminal that watches the session.
"""

from collections.abc import Callable, Iterator

from holdfast.cli.chat.output import diff, markdown_stream
from holdfast.cli.chat.output.painter import Painter
from holdfast.cli.chat.output.text_fit import call_line, fit, shorten
from holdfast.cli.chat.prompts import BY
from holdfast.cli.progress import FRAMES
from holdfast.cli.turn_output import instruction_notes, recovery_note
from holdfast.engine.goals.notice import event_notice
from holdfast.engine.liveness.handover_question import asked_by
from holdfast.engine.streaming.bus import LiveText, StreamItem, TurnBroke
from holdfast.engine.turn.loop import INTERRUPTED
from holdfast.engine.turn.refused_input import REFUSED_NOTICE
from holdfast.model.attachment import attachment_headers
from holdfast.model.entry import Entry
from holdfast.model.event import (
    ApprovalAnswered,
    ChildEnded,
    ChildStarted,
    Compacted,
    CompactionFailed,
    CompactionUndone,
    Ended,
    Event,
    FilesRestored,
    InputRefused,
    InstructionsLoaded,
    ModeChanged,
    ModelChanged,
    ModelSaid,
    PlanChanged,
    Quarantined,
    Recovered,
    Reopened,
    Rewound,
    Titled,
    ToolEnded,
    ToolStarted,
    TurnEnded,
    TurnStarted,
    UserSaid,
)
from holdfast.model.message import Text, ToolCall, text_of, typed_text
from holdfast.model.sanitize import one_line, visible
from holdfast.model.text import counted
from holdfast.slash.format import describe_end

LIVE_LINES = 60
"""Lines of an unfinished block that are rendered; a screen has fewer."""
OUTPUT_LINES = 5
"""Lines of the output of something that runs."""
MARKS = {"ok": ("●", "green"), "failed": ("●", "red"), "denied": ("●", "yellow"), "unknown": ("●", "magenta")}

STEPS = {"pending": ("○", ""), "in_progress": ("▸", "bold cyan"), "completed": ("✓", "dim")}


class TerminalTranscript:
    """Follows one session. `take` returns lines to print, `live` returns lines to show until the next update."""

    def __init__(self, painter: Painter, now: Callable[[], float]) -> None:
        self._painter = painter
        self._now = now
        self.turn_id: str | None = None
        """The open turn, according to the events so far."""
        self._since = 0.0
        self._streamed = ""
        self._pending = ""
        self._thinks = False
        self._calls: dict[str, ToolCall] = {}
        self._running: dict[str, tuple[str, float]] = {}
        self._outputs: dict[str, str] = {}
        """The newest output of running calls."""
        self._drawn = ("", 0, "")

    def take(self, item: StreamItem) -> str:
        """The lines to print for one update."""
        match item:
            case LiveText():
                return "".join(self._live(item))
            case TurnBroke():
                self._close()
                return self._note(f"! {item.error}", "bold red")
            case Entry():
                return "".join(self._entry(item))

    # streaming text

    def _live(self, item: LiveText) -> Iterator[str]:
        if item.kind == "reasoning":
            self._thinks = True
        elif item.kind == "output":
            self._outputs[item.call_id] = item.text
        elif item.kind in ("retrying", "progress"):
            yield self._note(f"[{one_line(item.text)}]", "yellow")
        elif item.kind == "restarted":
            if self._streamed:
                yield from self._flush()
                yield self._note(f"[the reply was cut off and starts again: {one_line(item.text)}]", "yellow")
            self._streamed = ""
        elif item.kept:
            yield from self._words(item.text)

    def _words(self, text: str) -> Iterator[str]:
        self._thinks = False
        self._streamed += text
        done, self._pending = markdown_stream.split_finished(self._pending + text)
        yield from (self._block(block.text, spaced=block.spaced) for block in done)

    def _flush(self) -> Iterator[str]:
        """Print the unfinished block: nothing will be added to it."""
        rest, self._pending = self._pending, ""
        last = markdown_stream.unfinished_block(rest)
        if last is not None:
            yield self._block(last.text, spaced=last.spaced)

    def _block(self, text: str, *, spaced: bool) -> str:
        gap = "\n" if spaced else ""
        return gap + self._painter.markdown(text)

    # events

    def _entry(self, entry: Entry) -> Iterator[str]:
        event = entry.event
        match event:
            case TurnStarted():
                self.turn_id, self._since = event.turn_id, self._now()
            case UserSaid():
                yield self._said(entry, event)
            case ModelSaid():
                yield from self._reply(event)
            case ToolStarted():
                self._running[event.call_id] = (self._call(event.call_id, event.name), self._now())
            case ToolEnded():
                yield self._result(entry, event)
            case PlanChanged():
                yield from self._plan(event)
            case TurnEnded():
                self._close()
                yield from self._end(event)
            case _:
                yield from self._notice(event)

    def _said(self, entry: Entry, event: UserSaid) -> str:
        """The typed text, and one line for each attachment."""
        shown = shorten(typed_text(event.parts), f"/show {entry.seq}")
        text = "\n" + self._painter.indented("❯ ", shown, mark_style="bold cyan", style="bold")
        headers = attachment_headers(event.parts)
        return text + "".join(self._painter.indented("  ", header, style="dim") for header in headers)

    def _reply(self, event: ModelSaid) -> Iterator[str]:
        text = text_of(event.parts)
        if text.startswith(self._streamed):
            yield from self._words(text[len(self._streamed) :])
            yield from self._flush()
        else:
            yield from self._flush()
            yield self._note("[complete reply:]", "dim")
            yield from self._words(text)
            yield from self._flush()
        self._streamed, self._thinks = "", False
        if event.partial:
            yield self._note("[cut off here]", "yellow")
        for part in event.parts:
            if isinstance(part, ToolCall):
                self._calls[part.id] = part

    def _result(self, entry: Entry, event: ToolEnded) -> str:
        self._running.pop(event.call_id, None)
        self._outputs.pop(event.call_id, None)
        mark, color = MARKS[event.outcome]
        spent = f" · {event.millis / 1000:.1f} s" if event.millis >= 100 else ""
        outcome = "" if event.outcome == "ok" else f" · {event.outcome}"
        head = self._painter.indented(
            f"{mark} ", f"{self._call(event.call_id, event.name)}{outcome}{spent}", mark_style=color
        )
        text = "\n".join(part.text for part in event.parts if isinstance(part, Text))
        return "\n" + head + self._output(text, f"/show {entry.seq}")

    def _plan(self, event: PlanChanged) -> Iterator[str]:
        for item in event.items:
            mark, style = STEPS[item.status]
            yield self._painter.indented(f"  {mark} ", item.content, mark_style=style, style=style)

    def _output(self, text: str, where: str) -> str:
        """Tool output in short; for a file change, the changed lines."""
        changed = diff.format_diff(text, where)
        if changed is not None:
            return "".join(self._painter.indented("  ", line.text, style=line.style) for line in changed)
        body = shorten(text, where, first=4, last=3).rstrip("\n")
        return self._painter.indented("  ", body, style="dim") if body.strip() else ""

    def _call(self, call_id: str, name: str) -> str:
        call = self._calls.get(call_id)
        return one_line(name) if call is None else call_line(call)

    def _end(self, event: TurnEnded) -> Iterator[str]:
        if event.outcome == "interrupted":
            reason = "" if event.reason == INTERRUPTED else f": {one_line(event.reason)}"
            yield self._note(f"[interrupted{reason}]", "yellow")
        elif event.outcome != "done":
            yield self._note(f"[the turn {event.outcome}: {one_line(event.reason) or 'no reason given'}]", "red")

    def _notice(self, event: Event) -> Iterator[str]:
        """Print the notice for an event that is not a message."""
        text = describe_notice(event)
        if text:
            yield self._note(text, "yellow" if text.startswith("!") else "dim")

    def _note(self, text: str, style: str) -> str:
        return self._painter.plain(text, style)

    def _close(self) -> None:
        self.turn_id = None
        self._running.clear()
        self._outputs.clear()
        self._calls.clear()
        self._thinks = False

    # unfinished output

    @property
    def is_acting(self) -> bool:
        """Whether a tool runs."""
        return bool(self._running)

    def live(self, *, is_working: bool, stop_key: str = "Esc") -> str:
        """The unfinished block, and the running tools or that the turn runs; empty if there is nothing of it."""
        pieces: list[str] = []
        rest = markdown_stream.tail(self._pending, LIVE_LINES)
        if rest.strip():
            pieces.append("\n" + self._unfinished(rest))
        for call_id, (what, since) in self._running.items() if is_working else ():
            pieces.append(self._painter.plain(f"{self._frame()} {what} · {self._now() - since:.0f} s", "yellow"))
            pieces.append(newest_lines(self._painter, self._outputs.get(call_id, "")))
        if is_working and not self._running:
            what = "thinking" if self._thinks else "working"
            seconds = f"{self._now() - self._since:.0f} s"
            gap = "\n" if pieces else ""
            pieces.append(
                gap + self._painter.plain(f"{self._frame()} {what} · {seconds} · {stop_key} interrupts", "dim")
            )
        return "".join(pieces)

    def _unfinished(self, text: str) -> str:
        """The block so far, rendered only when it has grown, not for each frame."""
        if self._drawn[:2] != (text, self._painter.width):
            self._drawn = (text, self._painter.width, self._painter.markdown(text))
        return self._drawn[2]

    def _frame(self) -> str:
        return FRAMES[int(self._now() * 8) % len(FRAMES)]


def newest_lines(painter: Painter, text: str, lines: int = OUTPUT_LINES) -> str:
    """The last lines of the output of something that runs, each cut at the edge; empty without output."""
    shown = [fit(visible(line), painter.width - 3) for line in text.rstrip("\n").split("\n")[-lines:]]
    return painter.indented("  ", "\n".join(shown), style="dim") if text.strip() else ""


def _compacted(event: Compacted) -> str:
    if not event.tokens_before:
        return "[compacted]"
    return f"[compacted: {event.tokens_before:,} → {event.tokens_after:,} tokens]"


def describe_notice(event: Event) -> str | None:
    """A one-line notice for an event that is not a message; None if it needs none."""
    match event:
        case Titled():
            return f"[titled {one_line(event.title)!r}]" if event.by == "user" else None
        case ModelChanged():
            return f"[model changed to {one_line(event.model)}]"
        case FilesRestored():
            return f"[{counted(len(event.files), 'file')} restored to event {event.to_seq}]"
        case ModeChanged():
            return f"[permission mode changed to {event.mode}]"
        case InstructionsLoaded() if event.notices:
            return instruction_notes(event)
        case InputRefused():
            return REFUSED_NOTICE
        case Rewound():
            return f"[rewound to event {event.to_seq}; the log keeps the rest]"
        case Recovered():
            return recovery_note(event)
        case Quarantined():
            return f"! the turn was quarantined: {one_line(event.reason)}"
        case Compacted():
            return _compacted(event)
        case CompactionUndone():
            return f"[compaction undone; epoch {event.epoch}]"
        case CompactionFailed():
            return f"! compaction failed: {one_line(event.reason)}"
        case ApprovalAnswered():
            reason = f": {one_line(event.reason)}" if event.reason else ""
            asked = "handover " if asked_by(event) else ""
            by = "you" if event.by == BY else one_line(event.by)
            return f"[{asked}{'allowed' if event.allowed else 'denied'} by {by}{reason}]"
        case ChildStarted() if event.background:
            return f"[sub-agent {event.child_id} started in the background: {one_line(event.title)}]"
        case ChildEnded():
            return f"[sub-agent {event.child_id} has ended, {event.outcome}: {one_line(event.title)}]"
        case Ended():
            return f"[session ended: {describe_end(event.reason)}]"
        case Reopened():
            return "[session reopened]"
        case _:
            return event_notice(event)
