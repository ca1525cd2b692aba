"""What is asked and done in the store when a session changes hands; each in one transaction."""

from holdfast.engine import recover
from holdfast.engine.admit import refuse_closed_to_words
from holdfast.engine.hand import Hand
from holdfast.model.errors import Busy
from holdfast.model.event import Recovered, TurnStarted
from holdfast.store import inputs, leases, sessions, workers
from holdfast.store.database import Transaction
from holdfast.store.leases import Lease

CLOSED = "closed"
"""How the end of a worker begins that was not killed."""
LEFT = "left"
"""The topic that rings when a session was given back with something left to do in it."""


def take_idle(tx: Transaction, session_id: str, worker_id: str) -> Lease:
    session = sessions.get(tx, session_id)
    refuse_closed_to_words(session)
    lease = leases.take(tx, session_id, worker_id)
    if session.lease_worker == worker_id or any(item.said for item in inputs.waiting(tx, session_id)):
        raise Busy(f"session {session_id} has a turn under way; wait for its end, or interrupt it")
    if session.summary.open_turn is not None:
        raise Busy(f"session {session_id} has a turn that was left open; say something to it, or resume it, first")
    return lease


def give_back(tx: Transaction, lease: Lease) -> None:
    """Let go of a session with a turn that is still open, and tell those who could go on with it."""
    if leases.release(tx, lease):
        tx.notify(lease.session_id)
        tx.notify(LEFT)


def is_left(tx: Transaction, session_id: str) -> bool:
    session = sessions.get(tx, session_id)
    is_waited_for = any(item.said for item in inputs.waiting(tx, session_id))
    return session.summary.open_turn is not None and session.lease_worker is None and not is_waited_for


def has_work(tx: Transaction, session_id: str) -> bool:
    session = sessions.get(tx, session_id)
    return session.summary.open_turn is not None or any(item.said for item in inputs.waiting(tx, session_id))


def evidence(tx: Transaction, hand: Hand) -> str:
    """How it is known that nobody works on the open turn any more."""
    taken = (entry.event for entry in reversed(hand.entries) if isinstance(entry.event, TurnStarted | Recovered))
    worker = workers.get(tx, next((event.worker_id for event in taken if event.worker_id), ""))
    if worker is None:
        return "the turn is open and nobody held the session"
    is_leaving = worker.leaving_at is not None and worker.end_reason is None
    if is_leaving or (worker.end_reason or "").startswith(CLOSED):
        return recover.LEFT
    return worker.end_reason or f"the turn is open and {worker.id} no longer holds the session"
