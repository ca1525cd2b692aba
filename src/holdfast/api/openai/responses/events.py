"""A turn in the format of the Responses API: its items and its stream events.

The events are numbered without gaps, and the numbers follow from the log alone, so that a stream can resume after any of
them, also on a server that was restarted meanwhile. For that, text is split into deltas at word boundaries, not where it
happened to arrive. Text is sent once it is durable; the text of a reply that then restarts stays an item that is never
completed.
"""

import re
from collections.abc import Iterable, Iterator

from holdfast.api.openai.responses import ids
from holdfast.api.openai.responses.document import ResponseFacts, call_item, message_item, reasoning_item, text_part
from holdfast.engine.streaming.bus import LiveText
from holdfast.model.entry import Entry
from holdfast.model.event import InputDropped, ModelSaid, ReplyRestarted, TurnEnded
from holdfast.model.message import Reasoning, ToolCall, text_of

EventData = dict[str, object]
WORD = re.compile(r"\s*\S+\s")
MAX_DELTA = 32
"""Characters of a delta in which no word ends."""


def delta_end(text: str, start: int) -> int:
    """Return where the delta that begins at `start` ends; `start` if it is not complete yet. More text does not change an end."""
    if found := WORD.match(text, start, start + MAX_DELTA):
        return found.end()
    return start + MAX_DELTA if len(text) - start >= MAX_DELTA else start


class ResponseEvents:
    """Folds the events of a turn. Each step yields numbered stream events; those up to `after` are left out."""

    def __init__(self, about: ResponseFacts, after: int = -1) -> None:
        self.about = about
        self.number = -1
        """Sequence number of the last event."""
        self.output: list[EventData] = []
        """Completed items."""
        self.ended: TurnEnded | None = None
        self.ended_at: int | None = None
        self._after = after
        self._count = 0
        """Items started."""
        self._calls: dict[str, ToolCall] = {}
        self._finish = ""
        self._item: str | None = None
        """Id of the message being streamed."""
        self._text = ""
        """Text received of the current reply."""
        self._sent = 0
        """Characters of it that were sent."""
        self._cut = False
        """Whether the reply broke off. It may restart, or stay as it is."""

    def take(self, item: Entry | LiveText) -> None:
        """Add an item and discard its events."""
        for _ in self.add(item):
            pass

    def begin(self) -> Iterator[EventData]:
        """Yield the events before the turn's own."""
        document = self.about.document("in_progress", [])
        yield from self._emit("response.created", {"response": document})
        yield from self._emit("response.in_progress", {"response": document})

    def add(self, item: Entry | LiveText) -> Iterator[EventData]:
        """Add an event or live text and yield the stream events."""
        if isinstance(item, LiveText):
            if item.kind == "text":
                yield from self._stream_text(item.text)
            elif item.kind == "restarted":
                self._drop()
            return
        match item.event:
            case ModelSaid():
                yield from self._said(item.event)
            case ReplyRestarted():
                yield from self._catch_up(item.event.text)
                self._drop()
            case TurnEnded():
                yield from self._end(item.event, item.at)
            case InputDropped():
                gone = TurnEnded(
                    turn_id=item.event.turn_id,
                    outcome="cancelled",
                    reason="the request was cancelled before it started",
                )
                yield from self._end(gone, item.at)

    def _emit(self, kind: str, more: EventData) -> Iterator[EventData]:
        self.number += 1
        if self.number > self._after:
            yield {"type": kind, "sequence_number": self.number, **more}

    def _stream_text(self, text: str) -> Iterator[EventData]:
        """Stream text of the current reply. White space alone starts no item."""
        if self._cut:
            self._drop()
        self._text += text
        if not self._text.strip():
            return
        if self._item is None:
            self._item = self._next_id("msg")
            yield from self._emit("response.output_item.added", self._indexed(message_item(self._item, "in_progress")))
            yield from self._emit("response.content_part.added", {**self._within(), "part": text_part("")})
        while (end := delta_end(self._text, self._sent)) > self._sent:
            yield from self._delta(end)

    def _delta(self, end: int) -> Iterator[EventData]:
        """Stream the text up to this position."""
        new, self._sent = self._text[self._sent : end], end
        yield from self._emit("response.output_text.delta", {**self._within(), "delta": new, "logprobs": []})

    def _catch_up(self, text: str) -> Iterator[EventData]:
        """Stream the rest of a text that is now complete. A text that differs from the streamed one is sent again."""
        if self._cut or not text.startswith(self._text):
            self._drop()
        yield from self._stream_text(text[len(self._text) :])
        if self._item is not None and self._sent < len(self._text):
            yield from self._delta(len(self._text))

    def _said(self, said: ModelSaid) -> Iterator[EventData]:
        yield from self._catch_up(text_of(said.parts))
        if said.partial:
            self._cut = True
            return
        self._finish = said.finish
        self._calls = {part.id: part for part in said.parts if isinstance(part, ToolCall)}
        yield from self._close("incomplete" if said.finish == "length" else "completed")
        if self.about.shows_reasoning:
            yield from self._reasoning("\n\n".join(p.text for p in said.parts if isinstance(p, Reasoning) and p.text))

    def _close(self, status: str) -> Iterator[EventData]:
        """Complete the message being streamed."""
        if self._item is not None:
            within, text = self._within(), self._text
            yield from self._emit("response.output_text.done", {**within, "text": text, "logprobs": []})
            yield from self._emit("response.content_part.done", {**within, "part": text_part(text)})
            yield from self._done(message_item(self._item, status, text))
        self._drop()

    def _drop(self) -> None:
        """Expect a new reply."""
        self._item, self._text, self._sent, self._cut = None, "", 0, False

    def _done(self, item: EventData) -> Iterator[EventData]:
        yield from self._emit("response.output_item.done", self._indexed(item))
        self.output.append(item)

    def _reasoning(self, text: str) -> Iterator[EventData]:
        """Stream the model's reasoning, which is known only when its reply is complete."""
        if not text.strip():
            return
        id_ = self._next_id("rs")
        part = {"type": "summary_text", "text": text}
        within: EventData = {"item_id": id_, "output_index": self._count - 1, "summary_index": 0}
        yield from self._emit("response.output_item.added", self._indexed(reasoning_item(id_)))
        head, delta = "response.reasoning_summary_part", "response.reasoning_summary_text"
        yield from self._emit(f"{head}.added", {**within, "part": {"type": "summary_text", "text": ""}})
        yield from self._emit(f"{delta}.delta", {**within, "delta": text})
        yield from self._emit(f"{delta}.done", {**within, "text": text})
        yield from self._emit(f"{head}.done", {**within, "part": part})
        yield from self._done(reasoning_item(id_, text))

    def _end(self, ended: TurnEnded, at: int) -> Iterator[EventData]:
        self.ended, self.ended_at = ended, at
        yield from self._close("incomplete")
        for call_id in ended.awaiting:
            if call_id in self._calls:
                yield from self._call(self._calls[call_id])
        document = self.document()
        kind = "failed" if document["status"] == "cancelled" else document["status"]
        yield from self._emit(f"response.{kind}", {"response": document})

    def _call(self, call: ToolCall) -> Iterator[EventData]:
        id_ = self._next_id("fc")
        within: EventData = {"item_id": id_, "output_index": self._count - 1}
        begun = call_item(id_, call, self.about.namespaces, "in_progress")
        yield from self._emit("response.output_item.added", self._indexed(begun))
        yield from self._emit("response.function_call_arguments.delta", {**within, "delta": call.arguments})
        done: EventData = {**within, "name": call.name, "arguments": call.arguments}
        yield from self._emit("response.function_call_arguments.done", done)
        yield from self._done(call_item(id_, call, self.about.namespaces))

    def _next_id(self, kind: str) -> str:
        self._count += 1
        return ids.item_id(kind, self.about.session_id, self.about.turn_id, self._count - 1)

    def _indexed(self, item: EventData) -> EventData:
        return {"output_index": self._count - 1, "item": item}

    def _within(self) -> EventData:
        return {"item_id": self._item, "output_index": self._count - 1, "content_index": 0}

    def document(self) -> EventData:
        """Build the response as it is now."""
        return self.about.document(self.status, self.output, self.ended, self.ended_at)

    @property
    def status(self) -> str:
        if self.ended is None:
            return "in_progress"
        if self.ended.outcome == "failed":
            return "failed"
        if self.ended.outcome != "done":
            return "cancelled"
        return "incomplete" if self._finish in ("length", "refused") and not self.ended.awaiting else "completed"


def replay_events(about: ResponseFacts, entries: Iterable[Entry]) -> ResponseEvents:
    """Replay the events of a turn, ignoring those of other turns."""
    events = ResponseEvents(about)
    for _ in events.begin():
        pass
    for entry in entries:
        if getattr(entry.event, "turn_id", None) == about.within:
            events.take(entry)
    return events
