"""The session row and its summary, which is derived from the log and can be rebuilt from it."""

import unicodedata
from collections.abc import Iterable
from typing import Literal

import msgspec

from holdfast.model.entry import Entry
from holdfast.model.event import (
    ApprovalAnswered,
    ApprovalAsked,
    ChildEnded,
    Compacted,
    CompactionFailed,
    CompactionUndone,
    Ended,
    Event,
    Forked,
    GoalSet,
    Imported,
    ItemAdded,
    ModeChanged,
    ModelCalled,
    ModelChanged,
    ModelSaid,
    Pinned,
    Quarantined,
    Reopened,
    Restored,
    Rewound,
    SessionOpened,
    Titled,
    ToolEnded,
    Trashed,
    TurnEnded,
    TurnStarted,
    Unpinned,
    Usage,
    UserSaid,
)
from holdfast.model.framework.item import read_item
from holdfast.model.goal import MOVING, GoalState, next_state
from holdfast.model.message import Message, ToolResult, text_of, typed_text
from holdfast.model.mode import DEFAULT_MODE, Mode

State = Literal["running", "asking", "waiting", "interrupted", "quarantined", "ended"]
ACTIVE = (SessionOpened, UserSaid, ModelSaid, ToolEnded, ChildEnded, Reopened, Forked, ItemAdded)
"""Events that count as activity for resets."""
PREVIEW_LENGTH = 120
MOST = 2**63 - 1
TITLE_LENGTH = 200
CHILD: Literal["delegate"] = "delegate"
"""The source of a child session."""
FORKED_CHILD = "library"
"""The source of a fork of a child, unless the fork has one: no session has delegated to it."""
JOINERS = "\u200c\u200d"
"""Invisible, but required to write Persian and many emoji."""
UNKNOWN_LETTERS = {"Cn", "Co"}
"""Categories of characters that are newer than this Python or private: shown unchanged."""


class SessionSummary(msgspec.Struct, frozen=True):
    """The part of a session that is derived from its log."""

    title: str | None = None
    source: str = ""
    channel: str | None = None
    model: str = ""
    created_at: int = 0
    updated_at: int = 0
    ended_at: int | None = None
    end_reason: str | None = None
    epoch: int = 0
    message_count: int = 0
    turn_count: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    parent_id: str | None = None
    """The session that a fork was made from; for a child session, the one that delegated to it."""
    side_of: str | None = None
    preview: str = ""
    pinned: int = 0
    trashed_at: int | None = None
    open_turn: str | None = None
    quarantined: str | None = None
    active_at: int = 0
    """When the last message was committed or the session was opened."""
    asking: int = 0
    """The number of calls of the open turn that wait for approval."""
    mode: Mode = DEFAULT_MODE
    """The permission mode."""
    goal: GoalState = ""
    """The state of its newest goal."""


class Session(msgspec.Struct, frozen=True):
    """A stored session: the head of its log, its lease, and its summary."""

    id: str
    seq: int
    hash: str
    lease_worker: str | None
    lease_token: int
    summary: SessionSummary
    owner_worker: str | None = None
    """The worker that has the session open, also between turns."""
    last_heartbeat_at: int | None = None

    @property
    def worker_id(self) -> str | None:
        """The worker that holds or has the session open, if any."""
        return self.lease_worker or self.owner_worker

    @property
    def delegated_by(self) -> str | None:
        """The session that delegated a task to this one; None for all but child sessions."""
        return self.summary.parent_id if self.summary.source == CHILD else None

    @property
    def display_title(self) -> str:
        """The title; without one, the first words or the id."""
        return self.summary.title or self.summary.preview or self.id

    @property
    def state(self) -> State:
        summary = self.summary
        if summary.ended_at is not None:
            return "ended"
        if summary.quarantined is not None:
            return "quarantined"
        if summary.open_turn is None:
            return "waiting"
        if summary.asking:
            return "asking"
        return "interrupted" if self.lease_worker is None else "running"


def fold(summary: SessionSummary, event: Event, at: int) -> SessionSummary:
    """The summary after one more event. Its times never go backwards, even if the clock did."""
    changes = _changes(summary, event, at)
    changes["updated_at"] = max(summary.updated_at, at)
    if (summary.goal or type(event) is GoalSet) and type(event) in MOVING:
        changes["goal"] = next_state(summary.goal, event)
    if isinstance(event, ACTIVE):
        changes["active_at"] = max(summary.active_at, at)
    return msgspec.structs.replace(summary, **changes)


def _changes(summary: SessionSummary, event: Event, at: int) -> dict[str, object]:
    match event:
        case UserSaid():
            first = summary.preview or preview(typed_text(event.parts))
            return {"message_count": summary.message_count + 1, "preview": first}
        case ModelSaid():
            return {
                "message_count": summary.message_count + 1,
                **_spent(summary, event.usage),
            }
        case ToolEnded():
            return {"message_count": summary.message_count + 1}
        case ItemAdded():
            return _item_added(summary, event)
        case TurnStarted():
            return {"turn_count": summary.turn_count + 1, "open_turn": event.turn_id, "quarantined": None}
        case TurnEnded():
            return {"open_turn": None, "asking": 0}
        case ApprovalAsked() if event.turn_id == summary.open_turn:
            return {"asking": summary.asking + 1}
        case ApprovalAnswered() if event.turn_id == summary.open_turn:
            return {"asking": max(0, summary.asking - 1)}
        case Compacted():
            return {"epoch": event.epoch, **({} if event.recorded else _spent(summary, event.usage))}
        case CompactionFailed():
            return {} if event.recorded else _spent(summary, event.usage)
        case ModelCalled():
            return _spent(summary, event.usage)
        case CompactionUndone():
            return {"epoch": event.epoch}
        case Titled():
            return {"title": title_line(event.title) or None}
        case ModelChanged():
            return {"model": event.model}
        case ModeChanged():
            return {"mode": event.mode}
        case Ended():
            return {"ended_at": event.last_sign_at or at, "end_reason": event.reason}
        case Quarantined():
            return {"quarantined": event.reason}
        case Reopened():
            return {"ended_at": None, "end_reason": None, "quarantined": None}
        case Pinned():
            return {"pinned": 1}
        case Unpinned():
            return {"pinned": 0}
        case Trashed():
            return {"trashed_at": at}
        case Restored():
            return {"trashed_at": None}
        case Imported():
            return _spent(summary, event.usage)
        case SessionOpened():
            return _opened(event, at)
        case Forked():
            return _forked(summary, event, at)
        case _:
            return {}


def _item_added(summary: SessionSummary, event: ItemAdded) -> dict[str, object]:
    if not event.role:
        return {}
    first = summary.preview
    if not first and event.role == "user":
        first = preview(text_of(read_item(event.item, event.text)))
    return {"message_count": summary.message_count + 1, "preview": first}


def _spent(summary: SessionSummary, usage: Usage) -> dict[str, object]:
    return {
        "tokens_in": _countable(summary.tokens_in + usage.tokens_in),
        "tokens_out": _countable(summary.tokens_out + usage.tokens_out),
    }


def _countable(tokens: int) -> int:
    """Clamp to what a row can hold: an imported log may claim any number."""
    return max(-MOST, min(MOST, tokens))


def _opened(event: SessionOpened, at: int) -> dict[str, object]:
    return {
        "title": title_line(event.title or "") or None,
        "source": event.source,
        "channel": event.channel,
        "model": event.model,
        "side_of": event.side_of,
        "parent_id": event.delegation.parent_id or None,
        "created_at": at,
        "mode": event.mode,
    }


def _forked(summary: SessionSummary, event: Forked, at: int) -> dict[str, object]:
    """A fork keeps the messages of its parent and resets everything else."""
    return {
        "parent_id": event.parent_id,
        "source": event.source or (summary.source if summary.source != CHILD else FORKED_CHILD),
        "channel": event.channel,
        "created_at": at,
        "ended_at": None,
        "end_reason": None,
        "pinned": 0,
        "trashed_at": None,
        "open_turn": None,
        "quarantined": None,
        "asking": 0,
        "mode": event.mode or summary.mode,
    }


def summarise(entries: Iterable[Entry]) -> SessionSummary:
    summary = SessionSummary()
    for entry in entries:
        summary = fold(summary, entry.event, entry.at)
    return summary


def standing(entries: Iterable[Entry]) -> list[Entry]:
    """The entries without those that a rewind took back."""
    kept: list[Entry] = []
    for entry in entries:
        if isinstance(entry.event, Rewound):
            while kept and kept[-1].seq > entry.event.to_seq:
                kept.pop()
        kept.append(entry)
    return kept


def messages(entries: Iterable[Entry]) -> list[Message]:
    """The messages of the entries, in order."""
    return [message for entry in entries if (message := as_message(entry)) is not None]


def as_message(entry: Entry) -> Message | None:
    """The message of an event, if it has one."""
    event = entry.event
    match event:
        case UserSaid():
            return Message(entry.seq, "user", event.parts, entry.at, turn_id=event.turn_id, name=event.name)
        case ModelSaid():
            return Message(entry.seq, "assistant", event.parts, entry.at, event.partial, event.turn_id)
        case ToolEnded():
            result = ToolResult(event.call_id, event.parts, event.outcome)
            return Message(entry.seq, "tool", (result,), entry.at, turn_id=event.turn_id)
        case ItemAdded() if event.role:
            return Message(entry.seq, event.role, read_item(event.item, event.text), entry.at)
        case _:
            return None


def preview(text: str) -> str:
    """The first words on one line."""
    return collapse_line(text[: 4 * PREVIEW_LENGTH])[:PREVIEW_LENGTH]


def title_line(text: str) -> str:
    """A title for lists and lookup; empty if nothing of it is visible."""
    return collapse_line(text)[:TITLE_LENGTH].strip(" " + JOINERS)


def collapse_line(text: str) -> str:
    """The text on one line, without control characters and lone surrogates."""
    return " ".join("".join(letter if _can_be_shown(letter) else " " for letter in text).split())


def _can_be_shown(letter: str) -> bool:
    return letter.isprintable() or letter in JOINERS or unicodedata.category(letter) in UNKNOWN_LETTERS
