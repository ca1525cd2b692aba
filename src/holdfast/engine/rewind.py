"""Taking back what was said last. Nothing is deleted: the log goes on, and says from where on it no longer counts.

What is to be taken back is read before anything is written. A write need not read the log again, only what has come
since: facts beside the turns change nothing, and anything else means that somebody has been faster.
"""

from collections.abc import Sequence
from typing import Literal

import msgspec

from holdfast.engine.context import Context
from holdfast.model.entry import Entry
from holdfast.model.errors import Busy, Conflict, Invalid
from holdfast.model.event import ANNOTATIONS, Event, Rewound, TurnStarted, UserSaid
from holdfast.model.message import Content
from holdfast.model.session import Session, messages, standing
from holdfast.store import log, sessions
from holdfast.store.database import Transaction


class Rewind(msgspec.Struct, frozen=True):
    """What is taken back: the words that began it, and how many messages no longer count."""

    session_id: str
    seq: int
    """Where the log stood when it was read."""
    events: tuple[Event, ...]
    """What the log will say of it."""
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


def look_back(tx: Transaction, session_id: str, *, count: int = 1, why: Literal["undo", "retry"] = "undo") -> Rewind:
    """What it takes to take the newest turns of a session back, and the compactions that stand for some of them.

    Raises Busy while a turn is open, Invalid if there is none to take back.
    """
    session = sessions.get(tx, session_id)
    if session.summary.open_turn is not None:
        raise Busy(f"session {session_id} has a turn under way; interrupt it first")
    entries = log.read(tx, session_id)
    taken = last_turns(entries, count)
    rewound = Rewound(to_seq=taken[0].seq - 1, why=why)
    events: tuple[Event, ...] = (*Context(entries).undone_by(rewound.to_seq), rewound)
    words = [entry.event for entry in taken if isinstance(entry.event, UserSaid)]
    parts = tuple(part for said in words if said.turn_id == words[0].turn_id for part in said.parts)
    return Rewind(session_id, session.seq, events, parts, len(messages(taken)))


def rewind(tx: Transaction, back: Rewind, *, at: int) -> Session:
    """Write it down. Raises Conflict if the session has gone on since, and Busy if somebody holds it."""
    since = log.read(tx, back.session_id, first=back.seq + 1)
    if not all(isinstance(entry.event, ANNOTATIONS) for entry in since):
        raise Conflict(f"session {back.session_id} has gone on meanwhile; nothing was taken back")
    return log.append_unheld(tx, back.session_id, back.events, at=at)
