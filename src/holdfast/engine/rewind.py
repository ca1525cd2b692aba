"""Taking back what was said last. Nothing is deleted: the log goes on, and says from where on it no longer counts."""

from collections.abc import Sequence
from typing import Literal

import msgspec

from holdfast.engine.context import Context
from holdfast.model.entry import Entry
from holdfast.model.errors import Busy, Invalid
from holdfast.model.event import Rewound, TurnStarted, UserSaid
from holdfast.model.message import Content
from holdfast.model.session import Session, standing
from holdfast.store import log, sessions
from holdfast.store.database import Transaction


class Taken(msgspec.Struct, frozen=True):
    """What was taken back: the words that began it, and how many messages no longer count."""

    session: Session
    parts: tuple[Content, ...]
    messages: int


def last_turns(entries: Sequence[Entry], count: int) -> list[Entry]:
    """The entries of the newest `count` turns that still count. Raises Invalid if there are not so many."""
    kept = standing(entries)
    starts = [place for place, entry in enumerate(kept) if isinstance(entry.event, TurnStarted)]
    if not starts:
        raise Invalid("there is nothing to take back: nothing has been said")
    if count < 1 or count > len(starts):
        raise Invalid(f"{count} turns cannot be taken back: there {_are(len(starts))} to take back")
    return kept[starts[-count] :]


def _are(count: int) -> str:
    return "is 1" if count == 1 else f"are {count}"


def rewind(
    tx: Transaction, session_id: str, *, count: int = 1, why: Literal["undo", "retry"] = "undo", at: int
) -> Taken:
    """Take the newest turns of a session back, and the compactions that stand for some of them.

    Raises Busy while a turn is open, Invalid if there is none to take back.
    """
    session = sessions.get(tx, session_id)
    if session.summary.open_turn is not None:
        raise Busy(f"session {session_id} has a turn under way; interrupt it first")
    entries = log.read(tx, session_id)
    taken = last_turns(entries, count)
    rewound = Rewound(to_seq=taken[0].seq - 1, why=why)
    session = log.append_unheld(tx, session_id, [*Context(entries).undone_by(rewound.to_seq), rewound], at=at)
    words = [entry.event for entry in taken if isinstance(entry.event, UserSaid)]
    first = [said for said in words if said.turn_id == words[0].turn_id] if words else []
    messages = sum(entry.kind in ("user_said", "model_said", "tool_ended") for entry in taken)
    return Taken(session, tuple(part for said in first for part in said.parts), messages)
