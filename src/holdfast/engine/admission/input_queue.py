"""Transactions on queued input and on requests to stop a turn."""

from holdfast.model.event import InputDropped
from holdfast.store.database import Transaction
from holdfast.store.repos import delegations, input_queue, log, sessions


def ask_to_stop(tx: Transaction, session_id: str, turn_id: str | None, *, at: int) -> str | None:
    """Request that the open turn stops; returns its id, or None if it is not open or not the one named by `turn_id`."""
    running = sessions.get(tx, session_id).summary.open_turn
    if running is None or turn_id not in (None, running):
        return None
    input_queue.request_stop(tx, session_id, running, at=at)
    return running


def void_stops(tx: Transaction, session_id: str) -> None:
    """Delete the requests to stop the open turn, unless a worker runs it and is about to stop it."""
    if sessions.get(tx, session_id).lease_worker is None:
        input_queue.delete_stop_requests(tx, session_id)


def withdraw(
    tx: Transaction, session_id: str, turn_id: str, *, at: int, reason: str = "its task was withdrawn"
) -> bool:
    """Remove input from the queue and log that; False if it is not queued. A sub-agent without its task ends, for that reason.

    The result of a sub-agent stays in the log, where the model sees it with the next message.
    """
    for item in input_queue.list_waiting(tx, session_id):
        if item.turn_id == turn_id and item.said is not None:
            input_queue.delete(tx, session_id, turn_id)
            for completion in item.completions:
                log.annotate(tx, session_id, completion, at=at)
            log.annotate(tx, session_id, InputDropped(turn_id=turn_id, parts=item.said.parts, terms=item.terms), at=at)
            if delegations.is_task(tx, session_id, turn_id) and sessions.get(tx, session_id).lease_worker is None:
                sessions.end(tx, session_id, "delegate_complete", at=at, detail=reason)
            return True
    return False
