"""Messages that stay in the context word for word, whatever is compacted."""

from holdfast.model.errors import Invalid
from holdfast.model.event import MessagePinned, MessageUnpinned
from holdfast.model.session import Session, as_message
from holdfast.store import log, sessions
from holdfast.store.database import Transaction


def pin_message(tx: Transaction, session_id: str, seq: int, *, pinned: bool, at: int) -> Session:
    """Pin a message, or take the pin away; whoever holds the session. Raises Invalid if the event carries no message."""
    session = sessions.get(tx, session_id)
    found = log.read(tx, session_id, first=seq, last=seq)
    if not found or as_message(found[0]) is None:
        what = f"event {seq} is {found[0].kind}" if found else f"there are events 1 to {session.seq}"
        raise Invalid(f"session {session_id} has no message {seq}: {what}; 'holdfast sessions show' gives the numbers")
    return log.annotate(tx, session_id, MessagePinned(seq=seq) if pinned else MessageUnpinned(seq=seq), at=at)
