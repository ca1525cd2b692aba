"""Converts the events of a log to the items of a session's page. Pure: pages and live updates use the same code."""

import json
import re
from collections.abc import Iterable

import msgspec

from holdfast.engine.decisions import decided
from holdfast.engine.delegation.create import BRIEF
from holdfast.interop.pages.code import ArgumentField, argument_fields
from holdfast.model.entry import Entry
from holdfast.model.event import (
    ApprovalAnswered,
    ApprovalAsked,
    ChildStarted,
    Compacted,
    Ended,
    Imported,
    InstructionsLoaded,
    ItemAdded,
    ModelCalled,
    ModelChanged,
    ModelSaid,
    PlanChanged,
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
from holdfast.model.framework.item import read_item
from holdfast.model.message import File, Image, Part, Reasoning, Text, ToolCall, ToolResult, text_of
from holdfast.model.plan import PlanItem, progress
from holdfast.model.text import counted
from holdfast.model.turn import FORKED

EMBEDDABLE = re.compile(r"data:image/(png|jpeg|gif|webp);base64,", re.IGNORECASE)


class TextLimits(msgspec.Struct, frozen=True):
    """How many characters of each message, output and argument are shown."""

    text: int = 20_000
    """Arbitrary, more than any reply has."""
    output: int = 4_000
    argument: int = 20_000


PAGE_LIMITS, NO_LIMITS = TextLimits(), TextLimits(2**62, 2**62, 2**62)


class PageBlock(msgspec.Struct, frozen=True):
    """A part of a message. `full_length` is its length before truncation, or 0."""

    kind: str
    text: str = ""
    full_length: int = 0
    url: str = ""
    is_made: bool = False
    """Whether it is an image that a tool made for the user."""


class PageItem(msgspec.Struct):
    """An item of the page. `id` is the id of its element: a changed item replaces it."""

    id: str
    kind: str
    seq: int
    at: int
    blocks: list[PageBlock] = []
    undone: bool = False
    """Whether a rewind removed it from the conversation."""
    partial: bool = False
    label: str = ""
    detail: str = ""
    state: str = ""
    millis: int = 0
    tokens: int = 0
    turn_id: str = ""
    call_id: str = ""
    arguments: list[ArgumentField] = []
    result_seq: int = 0
    steps: list[PlanItem] = []


class PageTranscript:
    """Converts entries to items, in order."""

    def __init__(self, limits: TextLimits = PAGE_LIMITS) -> None:
        self._limits = limits
        self.items: dict[str, PageItem] = {}
        self._calls: dict[tuple[str, str], PageItem] = {}
        self._questions: dict[tuple[str, str], PageItem] = {}

    def add_all(self, entries: Iterable[Entry]) -> None:
        for entry in entries:
            self.add(entry)

    def add(self, entry: Entry) -> list[PageItem]:
        """Add an entry. Returns the items that are new or changed."""
        changed = self._apply(entry)
        for item in changed:
            self.items[item.id] = item
        return changed

    def _apply(self, entry: Entry) -> list[PageItem]:
        event = entry.event
        match event:
            case UserSaid():
                message = self._make_item(
                    entry, "user", blocks=self._blocks(event.parts, entry.seq), turn_id=event.turn_id
                )
                message.label = event.name or ("Delegated task" if text_of(event.parts).endswith(BRIEF) else "")
                return [message]
            case ModelSaid():
                return self._add_reply(entry, event)
            case ItemAdded():
                return self._add_framework_item(entry, event)
            case ToolStarted():
                return self._update_call(event.turn_id, event.call_id, state="running")
            case ToolEnded():
                return self._add_result(entry, event)
            case ApprovalAsked():
                item = self._make_item(entry, "question", label=event.question, state="open", turn_id=event.turn_id)
                item.call_id = event.call_id
                self._questions[event.turn_id, event.call_id] = item
                return [item]
            case ApprovalAnswered() if (event.turn_id, event.call_id) in self._questions:
                item = self._questions[event.turn_id, event.call_id]
                item.state = "allowed" if event.allowed else "denied"
                item.detail = f"by {event.by}" + (f": {event.reason}" if event.reason else "")
                return [item]
            case TurnEnded():
                return [*self._close_questions(event.turn_id), *self._end_turn(entry, event)]
            case Compacted():
                return [self._add_compaction(entry, event)]
            case PlanChanged():
                item = self._make_item(entry, "plan", label="Plan" if event.items else "Plan removed")
                item.steps, item.detail = list(event.items), progress(event.items) if event.items else ""
                return [item]
            case Rewound():
                return [*self._mark_undone(event.to_seq), self._add_note(entry)]
            case TurnStarted():
                return []
            case ChildStarted() if not event.background:
                return []  # the call shows it
            case _:
                return [self._add_note(entry)]

    def _make_item(self, entry: Entry, kind: str, **fields: object) -> PageItem:
        return PageItem(f"e{entry.seq}", kind, entry.seq, entry.at, **fields)  # type: ignore[arg-type] # names of fields

    def _add_reply(self, entry: Entry, event: ModelSaid) -> list[PageItem]:
        reply = self._make_item(entry, "model", blocks=self._blocks(event.parts, entry.seq), partial=event.partial)
        reply.label, reply.tokens, reply.turn_id = event.model, event.usage.tokens_out, event.turn_id
        calls = [part for part in event.parts if isinstance(part, ToolCall)]
        cards = [self._add_call(entry, event.turn_id, call, n) for n, call in enumerate(calls)]
        return [reply, *cards] if reply.blocks or not cards else cards

    def _add_framework_item(self, entry: Entry, event: ItemAdded) -> list[PageItem]:
        if not event.role:
            return [self._make_item(entry, "note", label=f"Item of {event.adapter}", detail=event.text or event.key)]
        parts = read_item(event.item, event.text)
        found = [self._add_call(entry, "", one, n) for n, one in enumerate(parts) if isinstance(one, ToolCall)]
        for card in found:
            card.state = ""
        for result in (one for one in parts if isinstance(one, ToolResult)):
            card = self._calls.get(("", result.call_id)) or self._make_item(entry, "call", label=result.call_id)
            card.state, card.result_seq = result.outcome, entry.seq
            card.blocks = self._output(result.parts, entry.seq)
            found.append(card)
        kind = "user" if event.role == "user" else "model"
        message = self._make_item(entry, kind, blocks=self._blocks(parts, entry.seq))
        return [message, *found] if message.blocks or not found else found

    def _add_call(self, entry: Entry, turn_id: str, call: ToolCall, number: int) -> PageItem:
        card = PageItem(f"c{entry.seq}-{number}", "call", entry.seq, entry.at, label=call.name, state="asked")
        card.turn_id, card.call_id = turn_id, call.id
        card.arguments, card.detail = (
            argument_fields(call.name, call.arguments, self._limits.argument),
            _summarize_arguments(call.arguments),
        )
        self._calls[turn_id, call.id] = card
        return card

    def _update_call(self, turn_id: str, call_id: str, **changes: object) -> list[PageItem]:
        card = self._calls.get((turn_id, call_id))
        if card is None:
            return []
        for name, value in changes.items():
            setattr(card, name, value)
        return [card]

    def _add_result(self, entry: Entry, event: ToolEnded) -> list[PageItem]:
        card = self._calls.get((event.turn_id, event.call_id))
        if card is None:  # its call is on an earlier page, or was made by the client
            card = self._make_item(entry, "call", label=event.name or event.call_id)
        card.state, card.millis, card.result_seq = event.outcome, event.millis, entry.seq
        card.blocks = self._output(event.parts, entry.seq)
        return [card]

    def find_call(self, turn_id: str, call_id: str) -> PageItem | None:
        """The item of a call that has begun and not ended."""
        card = self._calls.get((turn_id, call_id))
        return card if card is not None and card.state == "running" else None

    def _close_questions(self, turn_id: str) -> list[PageItem]:
        """Close the questions of an ended turn that have no answer."""
        unanswered = [one for (turn, _), one in self._questions.items() if turn == turn_id and one.state == "open"]
        for item in unanswered:
            item.state, item.detail = "closed", "the turn ended without an answer"
        return unanswered

    def _end_turn(self, entry: Entry, event: TurnEnded) -> list[PageItem]:
        if event.outcome == "done":
            return []
        if event.code == FORKED:
            return [
                self._make_item(
                    entry, "note", label="Forked during a turn", detail="Open calls are closed in this fork"
                )
            ]
        label = "The turn failed:" if event.outcome == "failed" else f"The turn was {event.outcome}"
        return [self._make_item(entry, "note", label=label, detail=event.reason, state="bad")]

    def _add_compaction(self, entry: Entry, event: Compacted) -> PageItem:
        item = self._make_item(entry, "compaction", label=f"Context compacted (epoch {event.epoch})", state=event.how)
        sizes = f"{event.tokens_before:,} → {event.tokens_after:,} tokens · " if event.tokens_before else ""
        item.detail = f"{sizes}replaces events up to {event.upto_seq}"
        item.blocks = [_text_block(event.summary, self._limits.text)]
        return item

    def _mark_undone(self, to_seq: int) -> list[PageItem]:
        undone = [item for item in self.items.values() if item.seq > to_seq and not item.undone]
        for item in undone:
            item.undone = True
        return undone

    def _blocks(self, parts: Iterable[Part], seq: int) -> list[PageBlock]:
        return _to_blocks(parts, seq, self._limits.text)

    def _output(self, parts: Iterable[Part], seq: int) -> list[PageBlock]:
        return _to_blocks(parts, seq, self._limits.output)

    def _add_note(self, entry: Entry) -> PageItem:
        item = self._make_item(entry, "note", label=entry.kind.replace("_", " "))
        decision = decided(entry)
        if decision is not None:
            item.label, item.detail = decision.what, decision.evidence
        match entry.event:
            case SessionOpened() as event:
                item.label, item.detail = f"Opened by {event.source}", event.channel or ""
            case Titled() as event:
                item.label, item.detail = "Titled", event.title
            case InstructionsLoaded() as event:
                item.label = f"Loaded for the model: {event.part}"
            case ModelCalled() as event:
                item.label, item.detail = f"Model called ({event.purpose})", event.model
            case ModelChanged() as event:
                item.label = f"Model changed to {event.model}"
            case ProcessStarted() as event:
                item.label, item.detail = f"Process {event.process_id} started", event.command
            case Imported() as event:
                item.label = f"{counted(event.messages, 'message')} imported from {event.format}"
            case Recovered() | Ended():
                item.state = "important"
            case _:
                pass
        item.label = item.label[:1].upper() + item.label[1:]
        return item


def _to_blocks(parts: Iterable[Part], seq: int, limit: int) -> list[PageBlock]:
    blocks: list[PageBlock] = []
    for number, part in enumerate(parts):
        match part:
            case Text() if part.text.strip():
                blocks.append(_text_block(part.text, limit))
            case Reasoning() if part.text.strip():
                blocks.append(_text_block(part.text, limit, "reasoning"))
            case Image() if EMBEDDABLE.match(part.url) or part.url.startswith("file:"):
                blocks.append(PageBlock("image", url=f"{seq}/{number}", is_made=bool(part.saved_as)))
            case Image() | File():
                blocks.append(
                    PageBlock(
                        "file", text=getattr(part, "name", "") or _shorten_url(part.url), url=_safe_link(part.url)
                    )
                )
            case _:
                pass
    return blocks


def _text_block(text: str, limit: int, kind: str = "text") -> PageBlock:
    return PageBlock(kind, text[:limit], len(text) if len(text) > limit else 0)


def _shorten_url(url: str) -> str:
    return url if len(url) <= 120 else f"{url[:60]}… ({len(url):,} characters)"


def _safe_link(url: str) -> str:
    """The URL, if the page may link to it; else empty."""
    return url if re.fullmatch(r"https?://[^\s<>\"']+", url) else ""


def _summarize_arguments(text: str) -> str:
    """The first text among the arguments of a call, as its summary."""
    try:
        arguments = json.loads(text)
    except (ValueError, RecursionError):
        return text[:120]
    values = arguments.values() if isinstance(arguments, dict) else [arguments]
    return next((value[:160] for value in values if isinstance(value, str) and value.strip()), "")
