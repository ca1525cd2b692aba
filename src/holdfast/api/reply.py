"""What a turn comes to, as a client sees it: its words, the calls the client is to run, and what it cost."""

import msgspec

from holdfast.engine.bus import Live
from holdfast.model.entry import Entry
from holdfast.model.event import Compacted, InputDropped, ModelSaid, TurnEnded
from holdfast.model.ids import ALPHABET
from holdfast.model.message import ToolCall, text_of
from holdfast.model.shown import BETWEEN

FINISH = {"length": "length", "refused": "content_filter"}
"""The model's own reasons to stop that a client is told; all others are `stop`."""


class Reply:
    """Folds the events of a turn. `words` are what is new for a client that has heard everything so far."""

    def __init__(self, *, hears_live: bool = True) -> None:
        self.ended: TurnEnded | None = None
        self.seq = 0
        self.epoch: int | None = None
        """The epoch after this turn, if it compacted."""
        self._said = ""
        """All that the client has been told."""
        self._hears_live = hears_live
        self._finish = ""
        self._calls: dict[str, ToolCall] = {}
        self._due = ""
        """Live words that may still come although the client knows them from the log."""
        self._begin_anew()

    def _begin_anew(self) -> None:
        """Expect another reply of the model."""
        self._heard = ""
        """What is known of it."""
        self._held = ""
        """White space at its beginning, which is told together with the first word."""
        self._is_told = False

    @property
    def text(self) -> str:
        return self._said

    def add(self, item: Entry | Live) -> str:
        """Take one more piece of news in; the words that are new."""
        if isinstance(item, Live):
            return self._live(item)
        self.seq = item.seq
        match item.event:
            case ModelSaid() if not item.event.partial:
                return self._committed(item.event)
            case ModelSaid():  # half a reply, of a worker that could not finish it: another is made
                self._begin_anew()
                self._due = ""
            case Compacted():
                self.epoch = item.event.epoch
            case TurnEnded():
                self.ended = item.event
            case InputDropped():
                self.ended = TurnEnded(turn_id=item.event.turn_id, outcome="cancelled", reason="it was taken back")
        return ""

    def _live(self, live: Live) -> str:
        if live.kind == "restarted":
            self._begin_anew()
            self._due = ""
        if live.kind != "text" or not self._hears_live:
            return ""
        text, known = live.text, min(len(self._due), len(live.text))
        if self._due[:known] == text[:known]:
            self._due, text = self._due[known:], text[known:]
        else:
            self._due = ""
        return self._tell(text)

    def _committed(self, said: ModelSaid) -> str:
        """What was missed of a reply that is now whole. One that came out otherwise than it was told is told again."""
        text = text_of(said.parts)
        self._finish = said.finish
        self._calls = {part.id: part for part in said.parts if isinstance(part, ToolCall)}
        if not text.startswith(self._heard):
            self._begin_anew()
        missed = text[len(self._heard) :]
        new = self._tell(missed)
        self._begin_anew()
        self._due = missed
        return new

    def _tell(self, text: str) -> str:
        """Words for the client. Two replies of one turn are kept apart."""
        self._heard += text
        if not self._is_told:
            self._held += text
            if not self._held.strip():
                return ""
            text = (BETWEEN if self._said else "") + self._held
            self._is_told = True
        self._said += text
        return text

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        """What the client is to run."""
        awaited = self.ended.awaiting if self.ended is not None else ()
        return tuple(self._calls[call_id] for call_id in awaited if call_id in self._calls)

    @property
    def finish(self) -> str:
        return "tool_calls" if self.calls else FINISH.get(self._finish, "stop")

    def usage(self) -> dict[str, object]:
        assert self.ended is not None, "a turn is paid for at its end"
        used = self.ended.usage
        return {
            "prompt_tokens": used.tokens_in,
            "completion_tokens": used.tokens_out,
            "total_tokens": used.tokens_in + used.tokens_out,
            "prompt_tokens_details": {"cached_tokens": used.cache_read},
            "completion_tokens_details": {"reasoning_tokens": used.reasoning},
        }


class Frame(msgspec.Struct, frozen=True):
    """What stands in every piece of an answer."""

    id: str
    created: int
    model: str


def frame(turn_id: str, model: str) -> Frame:
    """The same for the same turn, whenever it is asked for. The time is that in the turn's id."""
    letters = turn_id.removeprefix("turn-")[:9]
    millis = sum(ALPHABET.index(letter) << 5 * place for place, letter in enumerate(reversed(letters)))
    return Frame(f"chatcmpl-{turn_id.removeprefix('turn-')}", millis // 1000, model)
