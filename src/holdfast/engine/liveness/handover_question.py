"""One terminal asks another to hand over a session. The question is stored with the approval questions."""

from holdfast.model.event import ApprovalAnswered
from holdfast.store.database import Transaction
from holdfast.store.repos import approvals
from holdfast.store.repos.approvals import Approval

HANDOVER = "handover"
"""Takes the place of a turn id."""


def ask(tx: Transaction, session_id: str, worker_id: str, *, at: int) -> None:
    """Store the question. The end of a turn withdraws it, like any other; it may then be asked again."""
    question = f"another terminal ({worker_id}) asks to take this session over"
    approvals.ask(tx, session_id, HANDOVER, f"{worker_id}@{at}", question, at=at)
    tx.notify(session_id)


def asked_by(question: Approval | ApprovalAnswered) -> str | None:
    """The worker that asks for the session; None for a question about a tool call."""
    return question.call_id.partition("@")[0] if question.turn_id == HANDOVER else None
