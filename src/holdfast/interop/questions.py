"""Approval questions as text for people."""

from holdfast.model.approval import describe, rule_kinds, suggested_prefix
from holdfast.model.form import USAGE
from holdfast.model.sanitize import exact
from holdfast.store.repos.approvals import Approval


def text(found: Approval, *, max_lines: int | None = None, more: str = "") -> str:
    """The question as text, in full or its first lines; `more` says how to see the rest."""
    if not found.proposal.tool:  # asked by an earlier release, which stored only this
        return exact(found.question)
    return describe(found.proposal, found.session_id, max_lines=max_lines, more=more)


def line(found: Approval) -> str:
    """The question on one line, for lists."""
    proposal = found.proposal
    if not proposal.tool:
        return found.question
    return f"{proposal.tool}: {proposal.message or proposal.command or proposal.arguments}"


def outcome(found: Approval, *, allowed: bool) -> str:
    """What the answer did, in a word."""
    if found.proposal.kind == "elicitation":
        return "Answered" if allowed else "Declined"
    return "Allowed" if allowed else "Denied"


def choices(found: Approval) -> str:
    """The possible answers, for a prompt."""
    if found.proposal.form:
        return USAGE
    kinds = rule_kinds(found.proposal)
    words = ["yes", "no [REASON]"]
    if kinds:
        words += ["session", "always"]
    if "prefix" in kinds:
        words.append(f"always prefix (commands that begin with `{prefix(found)}`)")
    if "tool" in kinds:
        words.append(f"always tool (every call of {found.proposal.tool})")
    return ", ".join(words)


def prefix(found: Approval) -> str:
    """The first words of the commands that `always prefix` allows."""
    return exact(" ".join(suggested_prefix(found.proposal)))
