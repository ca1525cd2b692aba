"""Approval questions and approval rules."""

import json
from typing import Literal, Self, cast

import msgspec

from holdfast.engine.liveness.handover_question import asked_by
from holdfast.interop.serialization import Document, Json, format_time
from holdfast.model.approval import ApprovalRule, parsed_arguments, rule_kinds
from holdfast.model.times import iso
from holdfast.store.repos.approvals import Approval


class ApprovalItem(Document, frozen=True):
    session_id: str
    turn_id: str
    call_id: str
    question: str
    asked_at: str
    allowed: int | None
    answered_by: str | None
    id: str

    @classmethod
    def from_approval(cls, found: Approval) -> Self:
        fields = msgspec.structs.asdict(found) | {"asked_at": iso(found.asked_at)}
        del fields["proposal"]
        return cls(**fields)


class RiskItem(Document, frozen=True):
    reason: str
    part: str


class QuestionItem(Document, frozen=True):
    """A question with everything that would run if it is approved."""

    id: str
    kind: Literal["approval", "elicitation", "sampling", "handover"]
    state: Literal["open", "allowed", "denied"]
    session_id: str
    turn_id: str
    call_id: str
    question: str
    asked_at: str
    tool: str
    arguments: Json | str
    command: str
    preview: str
    workdir: str
    requester: str
    risks: list[RiskItem]
    rules: list[Literal["exact", "prefix", "tool"]]
    allowed: bool | None
    answered_by: str | None
    message: str = ""
    """What a running call asks."""
    form: Json | None = None
    """The JSON schema of the values to give."""
    url: str = ""
    """The page that a running call asks the person to open."""
    parent_id: str | None = None
    """For the question of a child session: the session that delegated to it."""
    root_id: str | None = None
    """The session at the top of the tree."""

    @classmethod
    def from_approval(cls, found: Approval) -> Self:
        proposal = found.proposal
        return cls(
            id=found.id,
            kind=proposal.kind if asked_by(found) is None else "handover",
            state="open" if found.allowed is None else "allowed" if found.allowed else "denied",
            session_id=found.session_id,
            turn_id=found.turn_id,
            call_id=found.call_id,
            question=found.question,
            asked_at=iso(found.asked_at),
            tool=proposal.tool,
            arguments=cast("Json | str", parsed_arguments(proposal.arguments or "{}")),
            command=proposal.command,
            preview=proposal.preview,
            workdir=proposal.workdir,
            requester=proposal.requester,
            risks=[RiskItem(finding.reason, finding.part) for finding in proposal.findings],
            rules=list(rule_kinds(proposal)),
            allowed=None if found.allowed is None else bool(found.allowed),
            answered_by=found.answered_by,
            message=proposal.message,
            form=json.loads(proposal.form) if proposal.form else None,
            url=proposal.url,
            parent_id=proposal.parent_id or None,
            root_id=proposal.root_id or None,
        )


class QuestionListResponse(Document, frozen=True):
    questions: list[QuestionItem]
    open: int


class ApprovalRuleItem(Document, frozen=True):
    id: str
    text: str
    tool: str
    match: Literal["exact", "prefix", "tool"]
    pattern: Json | list[str] | str | None
    workdir: str
    risks: list[str]
    requester: str
    session_id: str | None
    created_by: str
    created_at: str
    revoked_at: str | None
    revoked_by: str | None

    @classmethod
    def from_rule(cls, rule: ApprovalRule) -> Self:
        return cls(
            id=rule.id,
            text=rule.text,
            tool=rule.tool,
            match=rule.match,
            pattern=json.loads(rule.pattern),
            workdir=rule.workdir,
            risks=list(rule.reasons),
            requester=rule.requester,
            session_id=rule.session_id,
            created_by=rule.created_by,
            created_at=iso(rule.created_at),
            revoked_at=format_time(rule.revoked_at),
            revoked_by=rule.revoked_by,
        )


class ApprovalRuleListResponse(Document, frozen=True):
    rules: list[ApprovalRuleItem]
