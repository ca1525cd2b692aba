"""Approval questions about tool calls. They survive a restart and are answered once."""

from typing import cast

import msgspec

from holdfast.model.answer import Answer
from holdfast.model.approval import ApprovalRule, Proposal, pattern_for, rule_kinds
from holdfast.model.entry import decode, dumps, loads
from holdfast.model.errors import Conflict, Invalid, NotFound
from holdfast.model.event import ApprovalAnswered
from holdfast.model.form import complete_answer
from holdfast.model.ids import derive
from holdfast.store import id_prefix
from holdfast.store.database import Row, Transaction
from holdfast.store.repos import approval_rules, log

QUESTION = "q-"
"""Prefix of question ids."""
ASKED_BY = "#"
"""Between the id of a running call and the key of a question that it asks."""


class Approval(msgspec.Struct, frozen=True):
    session_id: str
    turn_id: str
    call_id: str
    question: str
    asked_at: int
    allowed: int | None
    answered_by: str | None
    id: str = ""
    proposal: Proposal = Proposal()

    @property
    def call_key(self) -> tuple[str, str, str]:
        return self.session_id, self.turn_id, self.call_id


def derive_id(session_id: str, turn_id: str, call_id: str, *, at: int) -> str:
    """The id of a question asked at this time."""
    return derive(QUESTION, at, f"{session_id} {turn_id} {call_id}")


def ask(
    tx: Transaction,
    session_id: str,
    turn_id: str,
    call_id: str,
    question: str,
    *,
    at: int,
    proposal: Proposal = Proposal(),  # noqa: B008 (frozen)
) -> bool:
    """Store the question; False if it exists."""
    return tx.one("approvals.ask", **_row((session_id, turn_id, call_id), question, proposal, at)) is not None


def replace(tx: Transaction, call_key: tuple[str, str, str], question: str, proposal: Proposal, *, at: int) -> None:
    """Replace an open question because its proposal has changed. Raises Conflict if it was answered."""
    if tx.one("approvals.replace", **_row(call_key, question, proposal, at)) is None:
        raise Conflict(f"the question about call {call_key[2]} was answered meanwhile")


def _row(call_key: tuple[str, str, str], question: str, proposal: Proposal, at: int) -> dict[str, str | int]:
    session_id, turn_id, call_id = call_key
    return {
        "session": session_id,
        "turn": turn_id,
        "call": call_id,
        "question": question,
        "at": at,
        "id": derive_id(session_id, turn_id, call_id, at=at),
        "proposal": dumps(msgspec.to_builtins(proposal)),
    }


def answer(
    tx: Transaction, session_id: str, turn_id: str, call_id: str, *, answer: Answer, by: str, at: int
) -> ApprovalAnswered:
    """Answer the question, log the answer, and add the rule that it requests.

    Raises NotFound for no such question, Conflict if it was answered before, Invalid for a rule that would not be safe
    and for values that do not fit the form.
    """
    call_key = {"session": session_id, "turn": turn_id, "call": call_id}
    found = get(tx, session_id, turn_id, call_id)
    if found is None:
        raise NotFound(f"session {session_id} has no question about call {call_id}")
    answer = complete_answer(found.proposal, answer)
    if tx.one("approvals.answer", allowed=int(answer.allowed), by=by, at=at, **call_key) is None:
        raise Conflict(f"the question about call {call_id} was already answered by {found.answered_by}")
    rule = _rule(found, answer, by=by, at=at)
    if rule is not None:
        approval_rules.add(tx, rule)
    fact = ApprovalAnswered(
        turn_id=turn_id,
        call_id=call_id,
        allowed=answer.allowed,
        by=by,
        reason=answer.reason,
        scope=answer.scope,
        rule_id="" if rule is None else rule.id,
        content=answer.content,
    )
    log.annotate(tx, session_id, fact, at=at)
    return fact


def _rule(found: Approval, answer: Answer, *, by: str, at: int) -> ApprovalRule | None:
    if not answer.allowed or answer.scope == "once":
        return None
    proposal = found.proposal
    pattern = pattern_for(proposal, answer.match, answer.prefix) if rule_kinds(proposal) else None
    if pattern is None:
        raise Invalid(
            f"this call cannot be approved by a rule of type {answer.match!r}; allow it once, or choose another answer"
        )
    return ApprovalRule(
        id=derive(approval_rules.RULE, at, found.id),
        requester=proposal.requester,
        tool=proposal.tool,
        match=answer.match,
        pattern=pattern,
        workdir=proposal.workdir,
        reasons=tuple(sorted(proposal.reasons)),
        session_id=found.session_id if answer.scope == "session" else None,
        created_by=by,
        created_at=at,
    )


def get_answer(tx: Transaction, session_id: str, turn_id: str, call_id: str) -> ApprovalAnswered | None:
    """The answer in the log; None if there is none, or only the end of the turn answered."""
    for row in tx.all("approvals.list_answers", session=session_id):
        fact = decode("approval_answered", cast("str", row[0]))
        if isinstance(fact, ApprovalAnswered) and (fact.turn_id, fact.call_id) == (turn_id, call_id):
            return fact
    return None


def get_reason(tx: Transaction, session_id: str, turn_id: str, call_id: str) -> str:
    """The reason given with the answer; empty if none was given."""
    found = get_answer(tx, session_id, turn_id, call_id)
    return "" if found is None else found.reason


def get(tx: Transaction, session_id: str, turn_id: str, call_id: str) -> Approval | None:
    row = tx.one("approvals.get", session=session_id, turn=turn_id, call=call_id)
    return None if row is None else _approval(row)


def find(tx: Transaction, ref: str) -> Approval:
    """The question that a reference means: an id or the beginning of one. Raises NotFound or Ambiguous."""
    what = ("question", "questions")
    question_id = id_prefix.resolve_prefix(tx, "approvals.by_id_prefix", ref, kind=QUESTION, what=what)
    row = tx.one("approvals.by_id", id=question_id)
    assert row is not None, "it was found a moment ago, in the same snapshot"
    return _approval(row)


def list_unanswered(tx: Transaction, session_id: str) -> list[Approval]:
    return [_approval(row) for row in tx.all("approvals.list_unanswered", session=session_id)]


def list_unanswered_in_tree(tx: Transaction, session_id: str) -> list[Approval]:
    """Open questions of a session and of all child sessions below it: those that its user is asked."""
    return [_approval(row) for row in tx.all("approvals.list_unanswered_in_tree", root=session_id)]


def list_by_turn(tx: Transaction, session_id: str, turn_id: str) -> list[Approval]:
    """All questions of a turn, answered or not."""
    return [_approval(row) for row in tx.all("approvals.list_by_turn", session=session_id, turn=turn_id)]


def list_all_unanswered(tx: Transaction, limit: int) -> list[Approval]:
    """Open questions of all sessions, oldest first."""
    return [_approval(row) for row in tx.all("approvals.list_all_unanswered", limit=limit)]


def count_unanswered(tx: Transaction) -> int:
    row = tx.one("approvals.count_unanswered")
    assert row is not None, "a count is always there"
    return cast("int", row[0])


def withdraw(tx: Transaction, session_id: str, *, at: int) -> None:
    """Close the questions of a session whose turn has ended."""
    tx.run("approvals.withdraw", session=session_id, at=at)


def withdraw_call(tx: Transaction, session_id: str, turn_id: str, call_id: str, *, at: int) -> None:
    """Close the questions that a call asked while it ran: nobody waits for their answers any more."""
    # Their call ids begin with that of the call and `ASKED_BY`; the next character is the first one after them.
    first, after = f"{call_id}{ASKED_BY}", f"{call_id}{chr(ord(ASKED_BY) + 1)}"
    tx.run("approvals.withdraw_call", session=session_id, turn=turn_id, first=first, after=after, at=at)


def _approval(row: Row) -> Approval:
    facts, (id_, proposal) = row[:-2], row[-2:]
    decoded = loads(cast("str", proposal), Proposal)
    return Approval(*facts, cast("str", id_ or ""), decoded)  # type: ignore[arg-type,call-arg] # the schema checks the types
