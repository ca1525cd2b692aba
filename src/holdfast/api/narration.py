"""A turn in the words of the Responses API: its items, and the events that tell of them as they come.

Every event has a number that follows from the log alone, so that a stream can be read on from any of them, also by a
server that was started meanwhile. An event counts one, and words count one for each character: wherever a
stream broke off, the number says how many characters the client has. Words are told once they are safe; those of
a reply that was then begun anew stay an item that never gets done.
"""

from collections.abc import Iterable, Iterator

from holdfast.api import response_ids
from holdfast.api.response_document import About, call_item, message_item, reasoning_item, text_part
from holdfast.engine.bus import Live
from holdfast.model.entry import Entry
from holdfast.model.event import InputDropped, ModelSaid, ReplyRestarted, TurnEnded
from holdfast.model.message import Reasoning, ToolCall, text_of

Told = dict[str, object]


class Narration:
    """Folds the events of a turn. Each step yields what is to be told, with its number; `after` leaves out what is known."""

    def __init__(self, about: About, after: int = -1) -> None:
        self.about = about
        self.number = -1
        """That of the last event."""
        self.output: list[Told] = []
        """Items that are done."""
        self.ended: TurnEnded | None = None
        self.ended_at: int | None = None
        self._after = after
        self._count = 0
        """Items that were begun."""
        self._calls: dict[str, ToolCall] = {}
        self._finish = ""
        self._item: str | None = None
        """The message that is being told."""
        self._text = ""
        """What is known of the reply in the making."""
        self._told = 0
        """How much of it was told."""
        self._cut = False
        """Whether the reply broke off. It may be begun anew, or have been the last word."""

    def take(self, item: Entry | Live) -> None:
        """Take one more piece of news in, and tell nothing."""
        for _ in self.add(item):
            pass

    def begin(self) -> Iterator[Told]:
        """What comes before the turn's own events."""
        document = self.about.document("in_progress", [])
        yield from self._tell("response.created", {"response": document})
        yield from self._tell("response.in_progress", {"response": document})

    def add(self, item: Entry | Live) -> Iterator[Told]:
        """Take one more piece of news in."""
        if isinstance(item, Live):
            if item.kind == "text":
                yield from self._words(item.text)
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
                gone = TurnEnded(turn_id=item.event.turn_id, outcome="cancelled", reason="it was taken back")
                yield from self._end(gone, item.at)

    def _tell(self, kind: str, more: Told) -> Iterator[Told]:
        self.number += 1
        if self.number > self._after:
            yield {"type": kind, "sequence_number": self.number, **more}

    def _words(self, text: str) -> Iterator[Told]:
        """Words of the reply in the making. White space alone is not worth an item."""
        if self._cut:
            self._drop()
        self._text += text
        if not self._text.strip():
            return
        if self._item is None:
            self._item = self._next_id("msg")
            yield from self._tell("response.output_item.added", self._placed(message_item(self._item, "in_progress")))
            yield from self._tell("response.content_part.added", {**self._within(), "part": text_part("")})
        new, self._told = self._text[self._told :], len(self._text)
        self.number += len(new)
        if new and self.number > self._after:
            unknown = new[-min(len(new), self.number - self._after) :]
            delta = {"sequence_number": self.number, **self._within(), "delta": unknown, "logprobs": []}
            yield {"type": "response.output_text.delta", **delta}

    def _catch_up(self, text: str) -> Iterator[Told]:
        """The words that were missed of a text that is now known. One that came out otherwise than it was told is told again."""
        if self._cut or not text.startswith(self._text):
            self._drop()
        yield from self._words(text[len(self._text) :])

    def _said(self, said: ModelSaid) -> Iterator[Told]:
        yield from self._catch_up(text_of(said.parts))
        if said.partial:
            self._cut = True
            return
        self._finish = said.finish
        self._calls = {part.id: part for part in said.parts if isinstance(part, ToolCall)}
        yield from self._close("incomplete" if said.finish == "length" else "completed")
        if self.about.tells_reasoning:
            yield from self._reasoning("\n\n".join(p.text for p in said.parts if isinstance(p, Reasoning) and p.text))

    def _close(self, status: str) -> Iterator[Told]:
        """End the message that is being told."""
        if self._item is not None:
            within, text = self._within(), self._text
            yield from self._tell("response.output_text.done", {**within, "text": text, "logprobs": []})
            yield from self._tell("response.content_part.done", {**within, "part": text_part(text)})
            yield from self._done(message_item(self._item, status, text))
        self._drop()

    def _drop(self) -> None:
        """Expect another reply."""
        self._item, self._text, self._told, self._cut = None, "", 0, False

    def _done(self, item: Told) -> Iterator[Told]:
        yield from self._tell("response.output_item.done", self._placed(item))
        self.output.append(item)

    def _reasoning(self, text: str) -> Iterator[Told]:
        """The model's thinking, which is known only when its reply is whole."""
        if not text.strip():
            return
        id_ = self._next_id("rs")
        part = {"type": "summary_text", "text": text}
        within: Told = {"item_id": id_, "output_index": self._count - 1, "summary_index": 0}
        yield from self._tell("response.output_item.added", self._placed(reasoning_item(id_)))
        head, delta = "response.reasoning_summary_part", "response.reasoning_summary_text"
        yield from self._tell(f"{head}.added", {**within, "part": {"type": "summary_text", "text": ""}})
        yield from self._tell(f"{delta}.delta", {**within, "delta": text})
        yield from self._tell(f"{delta}.done", {**within, "text": text})
        yield from self._tell(f"{head}.done", {**within, "part": part})
        yield from self._done(reasoning_item(id_, text))

    def _end(self, ended: TurnEnded, at: int) -> Iterator[Told]:
        self.ended, self.ended_at = ended, at
        yield from self._close("incomplete")
        for call_id in ended.awaiting:
            if call_id in self._calls:
                yield from self._call(self._calls[call_id])
        document = self.document()
        kind = "failed" if document["status"] == "cancelled" else document["status"]
        yield from self._tell(f"response.{kind}", {"response": document})

    def _call(self, call: ToolCall) -> Iterator[Told]:
        id_ = self._next_id("fc")
        within: Told = {"item_id": id_, "output_index": self._count - 1}
        begun = call_item(id_, call, self.about.spaces, "in_progress")
        yield from self._tell("response.output_item.added", self._placed(begun))
        yield from self._tell("response.function_call_arguments.delta", {**within, "delta": call.arguments})
        done: Told = {**within, "name": call.name, "arguments": call.arguments}
        yield from self._tell("response.function_call_arguments.done", done)
        yield from self._done(call_item(id_, call, self.about.spaces))

    def _next_id(self, kind: str) -> str:
        self._count += 1
        return response_ids.item(kind, self.about.session_id, self.about.turn_id, self._count - 1)

    def _placed(self, item: Told) -> Told:
        return {"output_index": self._count - 1, "item": item}

    def _within(self) -> Told:
        return {"item_id": self._item, "output_index": self._count - 1, "content_index": 0}

    def document(self) -> Told:
        """The response as far as it has come."""
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


def folded(about: About, entries: Iterable[Entry]) -> Narration:
    """What the events of a turn come to; those of other turns among them do not count."""
    narration = Narration(about)
    for _ in narration.begin():
        pass
    for entry in entries:
        if getattr(entry.event, "turn_id", None) == about.within:
            narration.take(entry)
    return narration
