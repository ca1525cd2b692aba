"""Calls that a client was asked to run: a turn has ended with them, and the next one begins with their results."""

from holdfast.model.event import ModelSaid, Rewound, TurnEnded, TurnStarted
from holdfast.model.message import ToolCall
from holdfast.model.session import Session
from holdfast.store import log
from holdfast.store.database import Transaction

PAGE = 16


def calls(tx: Transaction, session: Session) -> tuple[ToolCall, ...]:
    """The calls of the newest turn that wait for their results. Reads no more of the log's end than it must."""
    if session.summary.turn_count == 0:
        return ()
    wanted: tuple[str, ...] = ()
    last, page = session.seq, 1
    while last > 0:
        entries = log.read(tx, session.id, first=max(1, last - page + 1), last=last)
        last, page = last - page, PAGE
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
    return ()
