"""What the store says of the session right now, beside its log: who has it open, what is asked, what waits."""

import msgspec

from holdfast.model.session import Session
from holdfast.store import approvals, inputs, sessions, workers
from holdfast.store.approvals import Approval
from holdfast.store.database import Transaction
from holdfast.store.inputs import Input
from holdfast.store.workers import Worker


class State(msgspec.Struct, frozen=True):
    """One look at the store."""

    session: Session
    owner: Worker | None
    questions: list[Approval]
    waiting: list[Input]


def look(tx: Transaction, session_id: str) -> State:
    session = sessions.get(tx, session_id)
    owner = None if session.owner_worker is None else workers.get(tx, session.owner_worker)
    waiting = [item for item in inputs.waiting(tx, session_id) if item.said is not None]
    return State(session, owner, approvals.unanswered(tx, session_id), waiting)
