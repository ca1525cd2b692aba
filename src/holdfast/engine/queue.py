"""What is done to words that wait, and to those that are being answered; each in one transaction."""

from holdfast.model.event import InputDropped
from holdfast.store import inputs, log, sessions
from holdfast.store.database import Transaction
from holdfast.store.inputs import Input


def ask_to_stop(tx: Transaction, session_id: str, request: Input, turn_id: str | None, *, at: int) -> bool:
    """Put the request to stop beside the open turn; False if there is none, or another than the one that is meant."""
    running = sessions.get(tx, session_id).summary.open_turn
    if running is None or turn_id not in (None, running):
        return False
    inputs.put(tx, session_id, request, at=at)
    return True


def withdraw(tx: Transaction, session_id: str, turn_id: str, *, at: int) -> bool:
    """Take words out of the queue and write down that they were; False if they do not wait."""
    for item in inputs.waiting(tx, session_id):
        if item.turn_id == turn_id and item.said is not None:
            inputs.drop(tx, session_id, turn_id)
            log.annotate(tx, session_id, InputDropped(turn_id=turn_id, parts=item.said.parts, terms=item.terms), at=at)
            return True
    return False
