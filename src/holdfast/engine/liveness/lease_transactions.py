"""Transactions that take, give back and check the lease of a session."""

from holdfast.engine.admission.admit import require_not_trashed
from holdfast.engine.turn import recovery
from holdfast.engine.turn.active_session import ActiveSession
from holdfast.engine.turn.recovery import WorkerDeath
from holdfast.model.errors import Busy
from holdfast.model.event import Recovered, TurnStarted
from holdfast.store.database import Transaction
from holdfast.store.repos import activity, input_queue, leases, sessions, workers
from holdfast.store.repos.leases import Lease

CLOSED = "closed"
"""The prefix of the end reason of a worker that shut down in order."""
LEFT = "left"
"""The topic that is notified when a session with pending work is given back."""


def take_idle(tx: Transaction, session_id: str, worker_id: str) -> Lease:
    session = sessions.get(tx, session_id)
    require_not_trashed(session)
    lease = leases.take(tx, session_id, worker_id)
    if session.lease_worker == worker_id or any(item.said for item in input_queue.list_waiting(tx, session_id)):
        raise Busy(f"session {session_id} is running a turn; wait for its end, or interrupt it")
    if session.summary.open_turn is not None:
        raise Busy(f"session {session_id} has an interrupted turn; resume it or send a message first")
    return lease


def give_back(tx: Transaction, lease: Lease) -> None:
    """Release a session whose turn is still open, and notify the workers that could continue it."""
    if leases.release(tx, lease):
        activity.end(tx, lease)
        tx.notify(lease.session_id)
        tx.notify(LEFT)


def is_left(tx: Transaction, session_id: str) -> bool:
    session = sessions.get(tx, session_id)
    is_waited_for = any(item.said for item in input_queue.list_waiting(tx, session_id))
    return session.summary.open_turn is not None and session.lease_worker is None and not is_waited_for


def has_work(tx: Transaction, session_id: str) -> bool:
    session = sessions.get(tx, session_id)
    return session.summary.open_turn is not None or any(item.said for item in input_queue.list_waiting(tx, session_id))


def death_of_holder(tx: Transaction, active: ActiveSession) -> WorkerDeath:
    """The evidence that no worker runs the open turn, and whether the turn may have caused the worker's death."""
    taken = (entry.event for entry in reversed(active.entries) if isinstance(entry.event, TurnStarted | Recovered))
    worker = workers.get(tx, next((event.worker_id for event in taken if event.worker_id), ""))
    if worker is None:
        return WorkerDeath("the turn is open and no worker held the session")
    is_leaving = worker.leaving_at is not None and worker.end_reason is None
    if is_leaving or (worker.end_reason or "").startswith(CLOSED):
        return WorkerDeath(recovery.LEFT)
    if worker.end_reason is None:
        return WorkerDeath(f"the turn is open and {worker.id} no longer holds the session")
    at_work = activity.list_by_worker(tx, worker.id)
    ours = any(one.session_id == active.id and one.turn_id == active.turn.id for one in at_work)
    return WorkerDeath(worker.end_reason, ours, len(at_work) - ours)
