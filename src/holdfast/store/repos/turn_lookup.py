"""Finds a turn in its session: queued, in the log, or withdrawn. Reads from the end of the log."""

import re
from collections.abc import Sequence
from typing import cast

import msgspec

from holdfast.model.entry import Entry
from holdfast.model.event import InputDropped, ModelSaid, RequestOptions, Rewound, TurnEnded, TurnStarted
from holdfast.model.message import ToolCall
from holdfast.model.session import Session
from holdfast.store.database import Transaction
from holdfast.store.repos import input_queue, log

PLAIN = re.compile(r"[A-Za-z0-9-]+")
"""Ids without characters that are special in a LIKE pattern."""

PAGE = 16
"""Events per read, from the end of the log."""


class TurnPosition(msgspec.Struct, frozen=True, kw_only=True):
    """Where a turn is, found by the id under which its message was admitted."""

    turn_id: str
    """The turn that contains the message: another one if the message joined it."""
    terms: RequestOptions
    first: int = 0
    """Its first event; 0 while the message is queued, or if it was dropped."""
    last: int = 0
    """Its last event; 0 while the turn is open."""
    dropped: InputDropped | None = None

    @property
    def is_open(self) -> bool:
        """Whether the turn has not ended."""
        return not self.last and self.dropped is None


class LogEnd(msgspec.Struct, frozen=True):
    """The verified end of a session's log."""

    seq: int
    awaited: tuple[ToolCall, ...]
    """The calls of the newest turn that wait for results from the client."""


def find(tx: Transaction, session_id: str, turn_id: str) -> TurnPosition | None:
    """The position of the turn; None if the session has no such turn."""
    if not PLAIN.fullmatch(turn_id):
        return None
    started = _newest(tx, session_id, "turn_started", _head(turn_id))
    if started:
        event = _event(tx, session_id, started).event
        terms = event.terms if isinstance(event, TurnStarted) else RequestOptions()
        return TurnPosition(turn_id=turn_id, terms=terms, first=started, last=_end(tx, session_id, turn_id, started))
    for item in input_queue.list_waiting(tx, session_id):
        if item.turn_id == turn_id and item.said is not None:
            return TurnPosition(turn_id=turn_id, terms=item.terms)
    return _dropped(tx, session_id, turn_id) or _joined(tx, session_id, turn_id)


def read_entries(tx: Transaction, session_id: str, position: TurnPosition) -> list[Entry]:
    """The events from its first to its last or to the end of the log, with events of others in between."""
    if not position.first:
        return []
    return log.read(tx, session_id, first=position.first, last=position.last or log.TO_THE_END)


def is_deleted(tx: Transaction, session_id: str, turn_id: str, position: TurnPosition) -> bool:
    """Whether a client has deleted the response of the turn."""
    return bool(_newest(tx, session_id, "response_deleted", _head(turn_id), first=position.first))


def read_log_end(tx: Transaction, session: Session, tail: Sequence[Entry] = ()) -> LogEnd:
    """The end of the log. Raises Corrupt if the last event is not the one that the session's row names.

    `tail` is the end of the log, if this transaction has read it.
    """
    if tail:
        log.check_head(session, tail)
    else:
        tail = (log.read_last(tx, session),)
    return LogEnd(session.seq, find_awaited_calls(tx, session, tail))


def find_awaited_calls(tx: Transaction, session: Session, tail: Sequence[Entry] = ()) -> tuple[ToolCall, ...]:
    """The calls of the newest turn that wait for their results. Reads no more of the log than it must.

    `tail` is the end of the log, if the caller knows it.
    """
    if session.summary.turn_count == 0:
        return ()
    wanted: tuple[str, ...] = ()
    entries = list(tail) or log.read(tx, session.id, first=session.seq, last=session.seq)
    while entries:
        last = entries[0].seq - 1
        for entry in reversed(entries):
            event = entry.event
            if isinstance(event, Rewound):
                last = event.to_seq
                break
            if isinstance(event, TurnEnded):
                wanted = event.awaiting
            if isinstance(event, ModelSaid) and wanted:
                made = {part.id: part for part in event.parts if isinstance(part, ToolCall)}
                return tuple(made[call_id] for call_id in wanted if call_id in made)
            if isinstance(event, TurnStarted) or (isinstance(event, TurnEnded) and not wanted):
                return ()
        entries = log.read(tx, session.id, first=max(1, last - PAGE + 1), last=last) if last > 0 else []
    return ()


def find_newest(tx: Transaction, session_id: str, kind: str, *, after: int = 0) -> int:
    """The newest event of this kind after `after`; 0 if there is none. Reads all events between the two."""
    return _newest(tx, session_id, kind, "%", first=after + 1)


def find_oldest(tx: Transaction, session_id: str, kind: str) -> int:
    """The oldest event of this kind; 0 if there is none."""
    row = tx.one("turn_lookup.find_oldest", session=session_id, kind=kind, first=1, pattern="%")
    return 0 if row is None else cast("int", row[0])


def _dropped(tx: Transaction, session_id: str, turn_id: str) -> TurnPosition | None:
    seq = _newest(tx, session_id, "input_dropped", _head(turn_id))
    if not seq:
        return None
    event = _event(tx, session_id, seq).event
    assert isinstance(event, InputDropped), "the query selects this kind"
    return TurnPosition(turn_id=turn_id, terms=event.terms, dropped=event)


def _joined(tx: Transaction, session_id: str, turn_id: str) -> TurnPosition | None:
    """A message that joined a running turn: the position begins there, with the options of that turn."""
    seq = _newest(tx, session_id, "user_said", f'%"input_id":"{turn_id}"%')
    if not seq:
        return None
    within = str(getattr(_event(tx, session_id, seq).event, "turn_id", ""))
    around = find(tx, session_id, within)
    return None if around is None else msgspec.structs.replace(around, first=seq)


def _end(tx: Transaction, session_id: str, turn_id: str, first: int) -> int:
    row = tx.one("turn_lookup.find_oldest", session=session_id, kind="turn_ended", first=first, pattern=_head(turn_id))
    return 0 if row is None else cast("int", row[0])


def _newest(tx: Transaction, session_id: str, kind: str, pattern: str, *, first: int = 1) -> int:
    row = tx.one("turn_lookup.find_newest", session=session_id, kind=kind, first=first, pattern=pattern)
    return 0 if row is None else cast("int", row[0])


def _event(tx: Transaction, session_id: str, seq: int) -> Entry:
    return log.read(tx, session_id, first=seq, last=seq)[0]


def _head(turn_id: str) -> str:
    """The LIKE pattern for event bodies that begin with this turn id."""
    return f'{{"turn_id":"{turn_id}"%'
