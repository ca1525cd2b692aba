"""Takes back the newest turns. Nothing is deleted: an event in the log says from where on it no longer counts.

The plan is made in a read. The write reads only what was added since: annotations change nothing, and anything else
means that the session has changed meanwhile.
"""

from collections.abc import Sequence
from typing import Literal

import msgspec

from holdfast.engine.context.context import Context
from holdfast.model.entry import Entry
from holdfast.model.errors import Busy, Conflict, Invalid
from holdfast.model.event import ANNOTATIONS, Event, Rewound, TurnStarted, UserSaid
from holdfast.model.message import Content
from holdfast.model.session import Session, messages, standing
from holdfast.store.database import Transaction
from holdfast.store.repos import client_history, input_queue, log, sessions


class Rewind(msgspec.Struct, frozen=True):
    """A planned rewind: the input of the first turn, and how many messages no longer count."""

    session_id: str
    seq: int
    """The last event when the log was read."""
    events: tuple[Event, ...]
    """The events to commit."""
    to_seq: int
    """The last event that still counts."""
    parts: tuple[Content, ...]
    messages: int


def last_turns(entries: Sequence[Entry], count: int) -> list[Entry]:
    """The entries of the newest `count` turns that still count. Raises Invalid if there are not so many."""
    kept = standing(entries)
    starts = [index for index, entry in enumerate(kept) if isinstance(entry.event, TurnStarted)]
    if not starts:
        raise Invalid("there is nothing to undo: the session has no turns")
    if count < 1 or count > len(starts):
        raise Invalid(f"{count} turns cannot be undone: there {_are(len(starts))} to undo")
    return kept[starts[-count] :]


def _are(count: int) -> str:
    return "is 1" if count == 1 else f"are {count}"


def plan_rewind(tx: Transaction, session_id: str, *, count: int = 1, why: Literal["undo", "retry"] = "undo") -> Rewind:
    """Plan to take back the newest turns of a session, and the compactions that cover some of them.

    Raises Busy while a turn is open, Invalid if there are not so many turns.
    """
    session = sessions.get(tx, session_id)
    if session.summary.open_turn is not None:
        if session.lease_worker is None and input_queue.list_waiting(tx, session_id):
            raise Busy(f"session {session_id} has queued messages behind an unfinished turn; send or drop them first")
        raise Busy(f"session {session_id} is running a turn; interrupt it first")
    entries = log.read(tx, session_id)
    taken = last_turns(entries, count)
    rewound = Rewound(to_seq=taken[0].seq - 1, why=why)
    events: tuple[Event, ...] = (*Context(entries).undone_by(rewound.to_seq), rewound)
    inputs = [entry.event for entry in taken if isinstance(entry.event, UserSaid)]
    parts = tuple(part for one in inputs if one.turn_id == inputs[0].turn_id for part in one.parts)
    return Rewind(session_id, session.seq, events, rewound.to_seq, parts, len(messages(taken)))


def rewind(tx: Transaction, back: Rewind, *, at: int) -> Session:
    """Commit the rewind. Raises Conflict if the session has changed since, and Busy if a worker holds it."""
    since = log.read(tx, back.session_id, first=back.seq + 1)
    if not all(isinstance(entry.event, ANNOTATIONS) for entry in since):
        raise Conflict(f"session {back.session_id} has changed meanwhile; nothing was undone")
    client_history.delete_after(tx, back.session_id, back.to_seq)
    return log.append_unheld(tx, back.session_id, back.events, at=at)
