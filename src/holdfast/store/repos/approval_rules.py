"""Rules that approve calls without a question. A person's answer creates each one; each can be revoked."""

import json
from typing import cast

from holdfast.model.approval import ApprovalRule, Match
from holdfast.model.errors import Conflict, NotFound
from holdfast.store import id_prefix
from holdfast.store.database import Row, Transaction

RULE = "rule-"
"""Prefix of rule ids."""
LIMIT = 1_000


def add(tx: Transaction, rule: ApprovalRule) -> None:
    """Store the rule. Adding it again changes nothing."""
    tx.run(
        "approval_rules.add",
        id=rule.id,
        requester=rule.requester,
        tool=rule.tool,
        kind=rule.match,
        pattern=rule.pattern,
        workdir=rule.workdir,
        reasons=json.dumps(rule.reasons),
        session=rule.session_id,
        by=rule.created_by,
        at=rule.created_at,
    )


def list_active(tx: Transaction, requester: str, tool: str) -> list[ApprovalRule]:
    """Rules that may apply to a call of this tool for this requester."""
    return [_rule(row) for row in tx.all("approval_rules.list_active", requester=requester, tool=tool)]


def list_all(tx: Transaction, *, revoked: bool = False) -> list[ApprovalRule]:
    """All rules, newest first; revoked ones only on request."""
    return [_rule(row) for row in tx.all("approval_rules.list_all", revoked=int(revoked), limit=LIMIT)]


def resolve(tx: Transaction, ref: str) -> str:
    """The id of the rule that a reference means: an id or the beginning of one. Raises NotFound or Ambiguous."""
    what = ("approval rule", "approval rules")
    return id_prefix.resolve_prefix(tx, "approval_rules.by_prefix", ref, kind=RULE, what=what)


def revoke(tx: Transaction, rule_id: str, *, by: str, at: int) -> ApprovalRule:
    """Revoke the rule; its calls need approval again. Raises NotFound, or Conflict if it was already revoked."""
    revoked = tx.one("approval_rules.revoke", id=rule_id, by=by, at=at)
    row = tx.one("approval_rules.get", id=rule_id)
    if row is None:
        raise NotFound(f"there is no approval rule {rule_id!r}")
    rule = _rule(row)
    if revoked is None:
        raise Conflict(f"approval rule {rule_id} was already revoked by {rule.revoked_by}")
    return rule


def _rule(row: Row) -> ApprovalRule:
    id_, requester, tool, kind, pattern, workdir, reasons, session_id, by, at, revoked_at, revoked_by = row
    return ApprovalRule(
        id=cast("str", id_),
        requester=cast("str", requester),
        tool=cast("str", tool),
        match=cast("Match", kind),
        pattern=cast("str", pattern),
        workdir=cast("str", workdir),
        reasons=tuple(json.loads(cast("str", reasons))),
        session_id=cast("str | None", session_id),
        created_by=cast("str", by),
        created_at=cast("int", at),
        revoked_at=cast("int | None", revoked_at),
        revoked_by=cast("str | None", revoked_by),
    )
