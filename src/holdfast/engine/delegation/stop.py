"""Stops a child session: because its parent's call or session ended, because a person asked, or at its time limit."""

from holdfast.engine.admission import input_queue as admitted_input
from holdfast.model.times import SECOND
from holdfast.store.database import Transaction
from holdfast.store.repos import delegations, input_queue, log, sessions


def stop_child(tx: Transaction, child_id: str, *, at: int) -> None:
    """Interrupt the child's turn, or end the child if its turn has not begun. Does nothing if the child has ended.

    An interrupted turn ends like any other, which records the child's end. If a worker is about to begin the turn, nothing
    is done: a later call interrupts it, or ends the child if that worker has left it. May be repeated.
    """
    record = delegations.get(tx, child_id)
    if record is None or record.ended_at is not None:
        return
    if not record.stop_reason:
        seconds = (record.deadline_at - record.started_at) // SECOND
        reason = f"it took longer than its time limit of {seconds} s"
        tx.run("delegations.request_stop", session=child_id, reason=reason)
    session = sessions.get(tx, child_id)
    if session.summary.open_turn == record.task_turn:
        input_queue.request_stop(tx, child_id, record.task_turn, at=at)
        return
    if session.lease_worker is not None:
        return
    stopped = delegations.get(tx, child_id)
    assert stopped is not None, "it was read in this transaction"
    admitted_input.withdraw(tx, child_id, record.task_turn, at=at, reason=stopped.stop_reason)
    for session_id, note in delegations.end(tx, stopped, "cancelled", stopped.stop_reason, at=at):
        log.annotate(tx, session_id, note, at=at)
    sessions.end(tx, child_id, "delegate_complete", at=at, detail=stopped.stop_reason)
