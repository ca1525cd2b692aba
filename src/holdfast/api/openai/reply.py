"""The reply of a turn as a client sees it: text, tool calls for the client, and usage."""

import msgspec

from holdfast.engine.streaming.bus import LiveText
from holdfast.model.client_transcript import BETWEEN
from holdfast.model.entry import Entry
from holdfast.model.event import Compacted, InputDropped, ModelSaid, TurnEnded
from holdfast.model.ids import ALPHABET
from holdfast.model.message import ToolCall, text_of

FINISH_REASONS = {"length": "length", "refused": "content_filter"}
"""Finish reasons of the model that clients see; all others are `stop`."""


class ReplyState:
    """Folds the events of a turn and returns the text that is new to the client."""

    def __init__(self, *, receives_live: bool = True) -> None:
        self.ended: TurnEnded | None = None
        self.seq = 0
        self.epoch: int | None = None
        """The epoch after this turn, if it compacted."""
        self._sent = ""
        """All text sent to the client."""
        self._receives_live = receives_live
        self._finish = ""
        self._calls: dict[str, ToolCall] = {}
        self._due = ""
        """Text the client has from the log and that may still arrive live."""
        self._reset()

    def _reset(self) -> None:
        """Expect a new reply of the model."""
        self._received = ""
        """The text received of it."""
        self._held = ""
        """Leading white space, sent together with the first word."""
        self._is_started = False

    @property
    def text(self) -> str:
        return self._sent

    def add(self, item: Entry | LiveText) -> str:
        """Add an event or live text; return the new text."""
        if isinstance(item, LiveText):
            return self._live(item)
        self.seq = item.seq
        match item.event:
            case ModelSaid() if not item.event.partial:
                return self._committed(item.event)
            case ModelSaid():  # a partial reply of a worker that could not finish it: a new one follows
                self._reset()
                self._due = ""
            case Compacted():
                self.epoch = item.event.epoch
            case TurnEnded():
                self.ended = item.event
            case InputDropped():
                self.ended = TurnEnded(
                    turn_id=item.event.turn_id,
                    outcome="cancelled",
                    reason="the request was cancelled before it started",
                )
        return ""

    def _live(self, live: LiveText) -> str:
        if live.kind == "restarted":
            self._reset()
            self._due = ""
        if live.kind != "text" or not self._receives_live:
            return ""
        text, known = live.text, min(len(self._due), len(live.text))
        if self._due[:known] == text[:known]:
            self._due, text = self._due[known:], text[known:]
        else:
            self._due = ""
        return self._send(text)

    def _committed(self, said: ModelSaid) -> str:
        """Return the rest of a reply that is now complete. A reply that differs from the streamed text is sent again."""
        text = text_of(said.parts)
        self._finish = said.finish
        self._calls = {part.id: part for part in said.parts if isinstance(part, ToolCall)}
        if not text.startswith(self._received):
            self._reset()
        missed = text[len(self._received) :]
        new = self._send(missed)
        self._reset()
        self._due = missed
        return new

    def _send(self, text: str) -> str:
        """Send text to the client, with a separator between two replies of one turn."""
        self._received += text
        if not self._is_started:
            self._held += text
            if not self._held.strip():
                return ""
            text = (BETWEEN if self._sent else "") + self._held
            self._is_started = True
        self._sent += text
        return text

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        """Tool calls that the client must run."""
        awaited = self.ended.awaiting if self.ended is not None else ()
        return tuple(self._calls[call_id] for call_id in awaited if call_id in self._calls)

    @property
    def finish(self) -> str:
        return "tool_calls" if self.calls else FINISH_REASONS.get(self._finish, "stop")

    def usage(self) -> dict[str, object]:
        assert self.ended is not None, "usage is known when the turn has ended"
        used = self.ended.usage
        return {
            "prompt_tokens": used.tokens_in,
            "completion_tokens": used.tokens_out,
            "total_tokens": used.tokens_in + used.tokens_out,
            "prompt_tokens_details": {"cached_tokens": used.cache_read},
            "completion_tokens_details": {"reasoning_tokens": used.reasoning},
        }


class ChunkFields(msgspec.Struct, frozen=True):
    """The fields in every chunk of a response."""

    id: str
    created: int
    model: str


def chunk_fields(turn_id: str, model: str) -> ChunkFields:
    """Derive the fields from the turn id, so that they are the same for every request. The time is that in the id."""
    letters = turn_id.removeprefix("turn-")[:9]
    millis = sum(ALPHABET.index(letter) << 5 * position for position, letter in enumerate(reversed(letters)))
    return ChunkFields(f"chatcmpl-{turn_id.removeprefix('turn-')}", millis // 1000, model)
