"""Questions to a person about a tool call: they survive a restart and are answered once."""

from typing import cast

import msgspec

from holdfast.model.entry import decode
from holdfast.model.errors import Conflict, NotFound
from holdfast.model.event import ApprovalAnswered
from holdfast.store import log
from holdfast.store.database import Transaction


class Approval(msgspec.Struct, frozen=True):
    session_id: str
    turn_id: str
    call_id: str
    question: str
    asked_at: int
    allowed: int | None
    answered_by: str | None


def ask(tx: Transaction, session_id: str, turn_id: str, call_id: str, question: str, *, at: int) -> bool:
    """Put the question; False if it had been put before."""
    return tx.one("approvals.ask", session=session_id, turn=turn_id, call=call_id, question=question, at=at) is not None


def answer(
    tx: Transaction, session_id: str, turn_id: str, call_id: str, *, allowed: bool, by: str, at: int, reason: str = ""
) -> None:
    """Answer it and log the answer. Raises NotFound for no such question, Conflict if it was answered before."""
    place = {"session": session_id, "turn": turn_id, "call": call_id}
    if tx.one("approvals.answer", allowed=int(allowed), by=by, at=at, **place) is None:
        found = get(tx, session_id, turn_id, call_id)
        if found is None:
            raise NotFound(f"session {session_id} has no question about call {call_id}")
        raise Conflict(f"the question about call {call_id} was answered already, by {found.answered_by}")
    fact = ApprovalAnswered(turn_id=turn_id, call_id=call_id, allowed=allowed, by=by, reason=reason)
    log.annotate(tx, session_id, fact, at=at)


def reason(tx: Transaction, session_id: str, turn_id: str, call_id: str) -> str:
    """Why a question was answered as it was; empty if nobody said."""
    for row in tx.all("approvals.answers", session=session_id):
        fact = decode("approval_answered", cast("str", row[0]))
        if isinstance(fact, ApprovalAnswered) and (fact.turn_id, fact.call_id) == (turn_id, call_id):
            return fact.reason
    return ""


def get(tx: Transaction, session_id: str, turn_id: str, call_id: str) -> Approval | None:
    row = tx.one("approvals.get", session=session_id, turn=turn_id, call=call_id)
    return None if row is None else Approval(*row)  # type: ignore[arg-type] # the schema checks the types


def unanswered(tx: Transaction, session_id: str) -> list[Approval]:
    return [Approval(*row) for row in tx.all("approvals.open", session=session_id)]  # type: ignore[arg-type] # the schema checks the types


def every_open(tx: Transaction, limit: int) -> list[Approval]:
    """What waits in all sessions, the oldest first."""
    return [Approval(*row) for row in tx.all("approvals.every_open", limit=limit)]  # type: ignore[arg-type] # the schema checks the types


def withdraw(tx: Transaction, session_id: str, *, at: int) -> None:
    """Close the questions of a session whose turn has ended."""
    tx.run("approvals.withdraw", session=session_id, at=at)
