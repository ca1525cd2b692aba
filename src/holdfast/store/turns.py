"""Where a turn stands in its session: waiting, in the log, or taken back. What is near the log's end is found soonest."""

import re
from typing import cast

import msgspec

from holdfast.model.entry import Entry
from holdfast.model.event import InputDropped, Terms, TurnStarted
from holdfast.store import inputs, log
from holdfast.store.database import Transaction

PLAIN = re.compile(r"[A-Za-z0-9-]+")
"""What can stand in a pattern and mean itself."""


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """A turn by the id under which its words were admitted."""

    turn_id: str
    """The turn they are in: another one if they joined it."""
    terms: Terms
    first: int = 0
    """Its first event; 0 while the words wait, or if they were taken back."""
    last: int = 0
    """Its last event; 0 while the turn is open."""
    dropped: InputDropped | None = None

    @property
    def is_open(self) -> bool:
        """Whether there is more to come."""
        return not self.last and self.dropped is None


def find(tx: Transaction, session_id: str, turn_id: str) -> Place | None:
    """Where the turn stands; None if there is no such turn in the session."""
    if not PLAIN.fullmatch(turn_id):
        return None
    started = _newest(tx, session_id, "turn_started", _head(turn_id))
    if started:
        event = _event(tx, session_id, started).event
        terms = event.terms if isinstance(event, TurnStarted) else Terms()
        return Place(turn_id=turn_id, terms=terms, first=started, last=_end(tx, session_id, turn_id, started))
    for item in inputs.waiting(tx, session_id):
        if item.turn_id == turn_id and item.said is not None:
            return Place(turn_id=turn_id, terms=item.terms)
    return _dropped(tx, session_id, turn_id) or _joined(tx, session_id, turn_id)


def entries(tx: Transaction, session_id: str, place: Place) -> list[Entry]:
    """The events from its first to its last, or to the log's end; those of others among them."""
    if not place.first:
        return []
    return log.read(tx, session_id, first=place.first, last=place.last or log.TO_THE_END)


def is_deleted(tx: Transaction, session_id: str, turn_id: str, place: Place) -> bool:
    """Whether a client wants it no longer to be found."""
    return bool(_newest(tx, session_id, "response_deleted", _head(turn_id), first=place.first))


def _dropped(tx: Transaction, session_id: str, turn_id: str) -> Place | None:
    seq = _newest(tx, session_id, "input_dropped", _head(turn_id))
    if not seq:
        return None
    event = _event(tx, session_id, seq).event
    assert isinstance(event, InputDropped), "its kind says so"
    return Place(turn_id=turn_id, terms=event.terms, dropped=event)


def _joined(tx: Transaction, session_id: str, turn_id: str) -> Place | None:
    """Words that joined a turn which ran already: it is theirs from there on, and the terms are its own."""
    seq = _newest(tx, session_id, "user_said", f'%"input_id":"{turn_id}"%')
    if not seq:
        return None
    within = str(getattr(_event(tx, session_id, seq).event, "turn_id", ""))
    around = find(tx, session_id, within)
    return None if around is None else msgspec.structs.replace(around, first=seq)


def _end(tx: Transaction, session_id: str, turn_id: str, first: int) -> int:
    row = tx.one("turns.oldest", session=session_id, kind="turn_ended", first=first, pattern=_head(turn_id))
    return 0 if row is None else cast("int", row[0])


def _newest(tx: Transaction, session_id: str, kind: str, pattern: str, *, first: int = 1) -> int:
    row = tx.one("turns.newest", session=session_id, kind=kind, first=first, pattern=pattern)
    return 0 if row is None else cast("int", row[0])


def _event(tx: Transaction, session_id: str, seq: int) -> Entry:
    return log.read(tx, session_id, first=seq, last=seq)[0]


def _head(turn_id: str) -> str:
    """How the body of an event of the turn begins."""
    return f'{{"turn_id":"{turn_id}"%'
