"""A log as a conversation: which events become which items of a page. Pure: the same for a whole page and for news."""

import json
import re
from collections.abc import Iterable

import msgspec

from holdfast.engine.why import decided
from holdfast.model.counted import counted
from holdfast.model.entry import Entry
from holdfast.model.event import (
    ApprovalAnswered,
    ApprovalAsked,
    Compacted,
    Ended,
    Imported,
    ModelChanged,
    ModelSaid,
    ProcessStarted,
    Recovered,
    Rewound,
    SessionOpened,
    Titled,
    ToolEnded,
    ToolStarted,
    TurnEnded,
    TurnStarted,
    UserSaid,
)
from holdfast.model.message import File, Image, Part, Reasoning, Text, ToolCall

SHOWN = 20_000
"""Letters of a message that a page shows at once; arbitrary, well over any reply."""
SHOWN_OUTPUT = 4_000
EMBEDDABLE = re.compile(r"data:image/(png|jpeg|gif|webp);base64,", re.IGNORECASE)


class Block(msgspec.Struct, frozen=True):
    """A piece of a message as it is drawn. `whole` is how long it is, if it was cut."""

    kind: str
    text: str = ""
    whole: int = 0
    url: str = ""


class Item(msgspec.Struct):
    """Something in its place on the page. `id` is that of its element: an item that changes replaces itself."""

    id: str
    kind: str
    seq: int
    at: int
    blocks: list[Block] = []
    gone: bool = False
    """Whether it was taken back."""
    partial: bool = False
    label: str = ""
    detail: str = ""
    state: str = ""
    millis: int = 0
    tokens: int = 0
    turn_id: str = ""
    call_id: str = ""
    arguments: str = ""
    result_seq: int = 0


class Story:
    """Folds entries into items, in order."""

    def __init__(self) -> None:
        self.items: dict[str, Item] = {}
        self._calls: dict[tuple[str, str], Item] = {}
        self._questions: dict[tuple[str, str], Item] = {}

    def tell(self, entries: Iterable[Entry]) -> None:
        for entry in entries:
            self.add(entry)

    def add(self, entry: Entry) -> list[Item]:
        """The items that are new or have changed."""
        changed = self._changed(entry)
        for item in changed:
            self.items[item.id] = item
        return changed

    def _changed(self, entry: Entry) -> list[Item]:
        event = entry.event
        match event:
            case UserSaid():
                return [self._item(entry, "user", blocks=_blocks(event.parts, entry.seq), turn_id=event.turn_id)]
            case ModelSaid():
                return self._model(entry, event)
            case ToolStarted():
                return self._of_call(event.turn_id, event.call_id, state="running")
            case ToolEnded():
                return self._result(entry, event)
            case ApprovalAsked():
                item = self._item(entry, "question", label=event.question, state="open", turn_id=event.turn_id)
                item.call_id = event.call_id
                self._questions[event.turn_id, event.call_id] = item
                return [item]
            case ApprovalAnswered() if (event.turn_id, event.call_id) in self._questions:
                item = self._questions[event.turn_id, event.call_id]
                item.state = "allowed" if event.allowed else "refused"
                item.detail = f"by {event.by}" + (f": {event.reason}" if event.reason else "")
                return [item]
            case TurnEnded():
                return [*self._withdrawn(event.turn_id), *self._turn_ended(entry, event)]
            case Compacted():
                return [self._seam(entry, event)]
            case Rewound():
                return [*self._taken_back(event.to_seq), self._note(entry)]
            case TurnStarted():
                return []
            case _:
                return [self._note(entry)]

    def _item(self, entry: Entry, kind: str, **fields: object) -> Item:
        return Item(f"e{entry.seq}", kind, entry.seq, entry.at, **fields)  # type: ignore[arg-type] # names of fields

    def _model(self, entry: Entry, event: ModelSaid) -> list[Item]:
        said = self._item(entry, "model", blocks=_blocks(event.parts, entry.seq), partial=event.partial)
        said.label, said.tokens, said.turn_id = event.model, event.usage.tokens_out, event.turn_id
        calls = [part for part in event.parts if isinstance(part, ToolCall)]
        cards = [self._card(entry, event.turn_id, call, n) for n, call in enumerate(calls)]
        return [said, *cards] if said.blocks or not cards else cards

    def _card(self, entry: Entry, turn_id: str, call: ToolCall, number: int) -> Item:
        card = Item(f"c{entry.seq}-{number}", "call", entry.seq, entry.at, label=call.name, state="asked")
        card.turn_id, card.call_id = turn_id, call.id
        card.arguments, card.detail = _arguments(call.arguments), _gist(call.arguments)
        self._calls[turn_id, call.id] = card
        return card

    def _of_call(self, turn_id: str, call_id: str, **changes: object) -> list[Item]:
        card = self._calls.get((turn_id, call_id))
        if card is None:
            return []
        for name, value in changes.items():
            setattr(card, name, value)
        return [card]

    def _result(self, entry: Entry, event: ToolEnded) -> list[Item]:
        card = self._calls.get((event.turn_id, event.call_id))
        if card is None:  # its call is on an earlier page, or was made by the client
            card = self._item(entry, "call", label=event.name or event.call_id)
        card.state, card.millis, card.result_seq = event.outcome, event.millis, entry.seq
        card.blocks = _blocks(event.parts, entry.seq, SHOWN_OUTPUT)
        return [card]

    def _withdrawn(self, turn_id: str) -> list[Item]:
        """Questions that the end of their turn has left without an answer."""
        left = [one for (turn, _), one in self._questions.items() if turn == turn_id and one.state == "open"]
        for item in left:
            item.state, item.detail = "closed", "the turn ended before anybody answered"
        return left

    def _turn_ended(self, entry: Entry, event: TurnEnded) -> list[Item]:
        if event.outcome == "done":
            return []
        return [self._item(entry, "note", label=f"The turn was {event.outcome}", detail=event.reason, state="bad")]

    def _seam(self, entry: Entry, event: Compacted) -> Item:
        item = self._item(entry, "seam", label=f"Compacted to epoch {event.epoch}", state=event.how)
        sizes = f"{event.tokens_before:,} → {event.tokens_after:,} tokens · " if event.tokens_before else ""
        item.detail = f"{sizes}stands for events up to {event.upto_seq}"
        item.blocks = [_text(event.summary, SHOWN)]
        return item

    def _taken_back(self, to_seq: int) -> list[Item]:
        taken = [item for item in self.items.values() if item.seq > to_seq and not item.gone]
        for item in taken:
            item.gone = True
        return taken

    def _note(self, entry: Entry) -> Item:
        item = self._item(entry, "note", label=entry.kind.replace("_", " "))
        decision = decided(entry)
        if decision is not None:
            item.label, item.detail = decision.what, decision.evidence
        match entry.event:
            case SessionOpened() as event:
                item.label, item.detail = f"Opened by {event.source}", event.channel or ""
            case Titled() as event:
                item.label, item.detail = "Titled", event.title
            case ModelChanged() as event:
                item.label = f"Model changed to {event.model}"
            case ProcessStarted() as event:
                item.label, item.detail = f"Process {event.process_id} started", event.command
            case Imported() as event:
                item.label = f"{counted(event.messages, 'message')} imported from {event.format}"
            case Recovered() | Ended():
                item.state = "loud"
            case _:
                pass
        item.label = item.label[:1].upper() + item.label[1:]
        return item


def _blocks(parts: Iterable[Part], seq: int, limit: int = SHOWN) -> list[Block]:
    found: list[Block] = []
    for number, part in enumerate(parts):
        match part:
            case Text() if part.text.strip():
                found.append(_text(part.text, limit))
            case Reasoning() if part.text.strip():
                found.append(_text(part.text, limit, "thoughts"))
            case Image() if EMBEDDABLE.match(part.url) or part.url.startswith("file:"):
                found.append(Block("image", url=f"{seq}/{number}"))
            case Image() | File():
                found.append(Block("file", text=getattr(part, "name", "") or _short(part.url), url=_link(part.url)))
            case _:
                pass
    return found


def _text(text: str, limit: int, kind: str = "text") -> Block:
    return Block(kind, text[:limit], len(text) if len(text) > limit else 0)


def _short(url: str) -> str:
    return url if len(url) <= 120 else f"{url[:60]}… ({len(url):,} characters)"


def _link(url: str) -> str:
    """The address, if a page may lead there."""
    return url if re.fullmatch(r"https?://[^\s<>\"']+", url) else ""


def _arguments(text: str) -> str:
    try:
        return json.dumps(json.loads(text), ensure_ascii=False, indent=2)[:SHOWN]
    except (ValueError, RecursionError):
        return text[:SHOWN]


def _gist(text: str) -> str:
    """What a call is about, on one line: the first text among its arguments."""
    try:
        given = json.loads(text)
    except (ValueError, RecursionError):
        return text[:120]
    values = given.values() if isinstance(given, dict) else [given]
    return next((value[:160] for value in values if isinstance(value, str) and value.strip()), "")
