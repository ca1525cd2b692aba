"""One terminal asks another for a session: the question waits among those about tools, and is answered once."""

from holdfast.model.event import ApprovalAnswered
from holdfast.store import approvals
from holdfast.store.approvals import Approval
from holdfast.store.database import Transaction

HANDOVER = "handover"
"""Stands where other questions name their turn."""


def ask(tx: Transaction, session_id: str, worker_id: str, *, at: int) -> None:
    """Put the question. It is withdrawn with the end of a turn, like any other, and may then be put again."""
    question = f"another terminal ({worker_id}) asks to take this session over"
    approvals.ask(tx, session_id, HANDOVER, f"{worker_id}@{at}", question, at=at)
    tx.notify(session_id)


def asked_by(question: Approval | ApprovalAnswered) -> str | None:
    """The worker that asks for the session; None for a question about a tool."""
    return question.call_id.partition("@")[0] if question.turn_id == HANDOVER else None
