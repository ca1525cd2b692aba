"""What a session's news look like: each committed event and each safe word becomes lines that are printed once.

Only what is not finished is drawn again and again: the block of the reply that is being written, and the tools
that run. The same story is told of past events when a session is taken up, and in every terminal that watches.
"""

from collections.abc import Callable, Iterator

from holdfast.cli.chat import blocks
from holdfast.cli.chat.fold import call_line, folded
from holdfast.cli.chat.paint import Paint
from holdfast.cli.reply import taken_up
from holdfast.engine.bus import Failed, Live, News
from holdfast.engine.handover import asked_by
from holdfast.interop.visible import one_line
from holdfast.model.entry import Entry
from holdfast.model.event import (
    ApprovalAnswered,
    Compacted,
    CompactionFailed,
    CompactionUndone,
    Ended,
    Event,
    ModelChanged,
    ModelSaid,
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
from holdfast.model.message import Text, ToolCall, text_of

FRAMES = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
LIVE_LINES = 60
"""Lines of an unfinished block that are drawn at all; a screen has fewer."""
MARKS = {"ok": ("●", "green"), "failed": ("●", "red"), "denied": ("●", "yellow"), "unknown": ("●", "magenta")}


class Story:
    """Follows one session. `take` gives what to print for good, `live` what to show until the next news."""

    def __init__(self, paint: Paint, now: Callable[[], float]) -> None:
        self._paint = paint
        self._now = now
        self.turn_id: str | None = None
        """The open turn, as far as the news tell."""
        self._since = 0.0
        self._streamed = ""
        self._pending = ""
        self._thinks = False
        self._calls: dict[str, ToolCall] = {}
        self._running: dict[str, tuple[str, float]] = {}
        self._drawn = ("", 0, "")

    def take(self, item: News) -> str:
        """The lines that one more piece of news adds."""
        match item:
            case Live():
                return "".join(self._live(item))
            case Failed():
                self._close()
                return self._note(f"! {item.error}", "bold red")
            case Entry():
                return "".join(self._entry(item))

    # words as they come

    def _live(self, item: Live) -> Iterator[str]:
        if item.kind == "reasoning":
            self._thinks = True
        elif item.kind == "restarted":
            if self._streamed:
                yield from self._flush()
                yield self._note(f"[the reply broke off and begins anew: {one_line(item.text)}]", "yellow")
            self._streamed = ""
        elif item.kept:
            yield from self._words(item.text)

    def _words(self, text: str) -> Iterator[str]:
        self._thinks = False
        self._streamed += text
        done, self._pending = blocks.cut(self._pending + text)
        yield from (self._block(block.text, apart=block.apart) for block in done)

    def _flush(self) -> Iterator[str]:
        """The block that was being written is as finished as it will be."""
        rest, self._pending = self._pending, ""
        last = blocks.last(rest)
        if last is not None:
            yield self._block(last.text, apart=last.apart)

    def _block(self, text: str, *, apart: bool) -> str:
        gap = "\n" if apart else ""
        return gap + self._paint.markdown(text)

    # events

    def _entry(self, entry: Entry) -> Iterator[str]:
        event = entry.event
        match event:
            case TurnStarted():
                self.turn_id, self._since = event.turn_id, self._now()
            case UserSaid():
                yield self._said(entry, text_of(event.parts))
            case ModelSaid():
                yield from self._reply(event)
            case ToolStarted():
                self._running[event.call_id] = (self._call(event.call_id, event.name), self._now())
            case ToolEnded():
                yield self._result(entry, event)
            case TurnEnded():
                self._close()
                yield from self._end(event)
            case _:
                yield from self._aside(event)

    def _said(self, entry: Entry, text: str) -> str:
        shown = folded(text, f"/show {entry.seq}")
        return "\n" + self._paint.indented("❯ ", shown, mark_style="bold cyan", style="bold")

    def _reply(self, event: ModelSaid) -> Iterator[str]:
        text = text_of(event.parts)
        if text.startswith(self._streamed):
            yield from self._words(text[len(self._streamed) :])
            yield from self._flush()
        else:
            yield from self._flush()
            yield self._note("[the whole reply:]", "dim")
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
        mark, color = MARKS[event.outcome]
        spent = f" · {event.millis / 1000:.1f} s" if event.millis >= 100 else ""
        outcome = "" if event.outcome == "ok" else f" · {event.outcome}"
        head = self._paint.indented(
            f"{mark} ", f"{self._call(event.call_id, event.name)}{outcome}{spent}", mark_style=color
        )
        text = "\n".join(part.text for part in event.parts if isinstance(part, Text))
        body = folded(text, f"/show {entry.seq}", first=4, last=3).rstrip("\n")
        return "\n" + head + (self._paint.indented("  ", body, style="dim") if body.strip() else "")

    def _call(self, call_id: str, name: str) -> str:
        call = self._calls.get(call_id)
        return one_line(name) if call is None else call_line(call)

    def _end(self, event: TurnEnded) -> Iterator[str]:
        if event.outcome == "interrupted":
            yield self._note(f"[interrupted: {one_line(event.reason)}]", "yellow")
        elif event.outcome != "done":
            yield self._note(f"[the turn {event.outcome}: {one_line(event.reason) or 'no reason was given'}]", "red")

    def _aside(self, event: Event) -> Iterator[str]:
        """What a person should know that nobody said."""
        text = aside(event)
        if text:
            yield self._note(text, "yellow" if text.startswith("!") else "dim")

    def _note(self, text: str, style: str) -> str:
        return self._paint.plain(text, style)

    def _close(self) -> None:
        self.turn_id = None
        self._running.clear()
        self._calls.clear()
        self._thinks = False

    # what is not finished

    @property
    def is_acting(self) -> bool:
        """Whether a tool runs."""
        return bool(self._running)

    def live(self, *, is_working: bool) -> str:
        """The unfinished block and what runs, drawn; empty when nothing goes on."""
        pieces: list[str] = []
        rest = blocks.tail(self._pending, LIVE_LINES)
        if rest.strip():
            pieces.append("\n" + self._unfinished(rest))
        for what, since in self._running.values() if is_working else ():
            pieces.append(self._paint.plain(f"{self._frame()} {what} · {self._now() - since:.0f} s", "yellow"))
        if is_working and not pieces:
            what = "thinking" if self._thinks else "working"
            pieces.append(self._paint.plain(f"{self._frame()} {what} · {self._now() - self._since:.0f} s", "dim"))
        return "".join(pieces)

    def _unfinished(self, text: str) -> str:
        """The block so far, drawn once for each time it has grown and not for each frame."""
        if self._drawn[:2] != (text, self._paint.width):
            self._drawn = (text, self._paint.width, self._paint.markdown(text))
        return self._drawn[2]

    def _frame(self) -> str:
        return FRAMES[int(self._now() * 8) % len(FRAMES)]


def _compacted(event: Compacted) -> str:
    sizes = f", {event.tokens_before:,} → {event.tokens_after:,} tokens" if event.tokens_before else ""
    shown = f"a summary of events up to {event.upto_seq}" if event.how != "thinned" else "long results in part"
    return f"[compacted to epoch {event.epoch}{sizes}: the model is shown {shown}]"


def aside(event: Event) -> str | None:
    """An event that nobody said, in a line; None for one that nobody needs to hear of."""
    match event:
        case Titled():
            return f"[titled {one_line(event.title)!r}]" if event.by == "user" else None
        case ModelChanged():
            return f"[the model is {one_line(event.model)} from here on]"
        case Rewound():
            return f"[what was said after event {event.to_seq} no longer counts; the log keeps it]"
        case Recovered():
            return taken_up(event)
        case Quarantined():
            return f"! put into quarantine: {one_line(event.reason)}"
        case Compacted():
            return _compacted(event)
        case CompactionUndone():
            return f"[a compaction was undone; epoch {event.epoch}]"
        case CompactionFailed():
            return f"! a compaction failed: {one_line(event.reason)}"
        case ApprovalAnswered():
            reason = f": {one_line(event.reason)}" if event.reason else ""
            asked = "handing it over was " if asked_by(event) else ""
            return f"[{asked}{'allowed' if event.allowed else 'refused'} by {one_line(event.by)}{reason}]"
        case Ended():
            return f"[the session was ended: {event.reason}]"
        case Reopened():
            return "[the session is open again]"
        case _:
            return None
