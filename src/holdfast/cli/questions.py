"""`holdfast questions`: list and answer open questions, list and revoke approval rules."""

from typing import TYPE_CHECKING

import click
import msgspec

from holdfast.cli import context, render
from holdfast.cli.parsing.groups import SuggestingGroup
from holdfast.clock import format_local_time
from holdfast.engine.liveness.janitor import assess_worker
from holdfast.interop import questions as shown
from holdfast.interop.documents.questions import (
    ApprovalRuleItem,
    ApprovalRuleListResponse,
    QuestionItem,
    QuestionListResponse,
)
from holdfast.model.approval import ApprovalRule
from holdfast.model.form import require_reply
from holdfast.model.sanitize import one_line
from holdfast.process_lookup import current_identity
from holdfast.store.database import Transaction
from holdfast.store.repos import approval_rules, approvals, sessions, workers
from holdfast.store.repos.approvals import Approval

if TYPE_CHECKING:
    from holdfast.wiring.store import App

LIMIT = 1_000
BY = "the command line"


@click.group(cls=SuggestingGroup, invoke_without_command=True)
@context.json_option
@click.pass_context
def questions(ctx: click.Context, *, as_json: bool) -> None:
    """List and answer open questions of all sessions."""
    if ctx.invoked_subcommand is None:
        _list(as_json=as_json)


@questions.command("list")
@context.json_option
def list_(*, as_json: bool) -> None:
    """List open questions, oldest first."""
    _list(as_json=as_json)


def _list(*, as_json: bool) -> None:
    found = context.read(approvals.list_all_unanswered, LIMIT)
    if as_json:
        render.print_json(QuestionListResponse([QuestionItem.from_approval(one) for one in found], len(found)))
        return
    if not found:
        render.print_text("No open questions.")
        return
    rows = [
        [one.id, format_local_time(one.asked_at), one.session_id, one.proposal.requester, one_line(shown.line(one))]
        for one in found
    ]
    render.print_table(["question", "asked", "session", "requested by", "about"], rows, stretch=4)


@questions.command()
@click.argument("question_id", metavar="ID")
@context.json_option
def show(*, question_id: str, as_json: bool) -> None:
    """Show a question in full: everything that an approval would run."""
    found = context.read(approvals.find, question_id)
    if as_json:
        render.print_json(QuestionItem.from_approval(found))
        return
    render.print_text(shown.text(found))
    if found.allowed is None:
        render.print_text(f"Answers: {shown.choices(found)}")
    else:
        outcome = shown.outcome(found, allowed=bool(found.allowed))
        render.print_text(f"{outcome} by {one_line(found.answered_by or '')}")


@questions.command()
@click.argument("question_id", metavar="ID")
@click.argument("answer_words", metavar="ANSWER...", nargs=-1, required=True)
@click.option("--prefix", help="Set the first words of the commands that `always prefix` allows.")
@context.json_option
def answer(*, question_id: str, answer_words: tuple[str, ...], prefix: str | None, as_json: bool) -> None:
    """Answer a question.

    ANSWER is yes, session, always, always prefix, always tool, or no with an optional reason. For a form it is
    NAME=VALUE pairs, a JSON object, yes for the defaults, or no.
    """

    def work(tx: Transaction, app: "App") -> tuple[Approval, bool]:
        found = approvals.find(tx, question_id)
        given = require_reply(found.proposal, " ".join(answer_words))
        given = msgspec.structs.replace(given, prefix=tuple((prefix or "").split()))
        approvals.answer(tx, *found.call_key, answer=given, by=BY, at=app.clock.now())
        return approvals.find(tx, found.id), _is_running(tx, found.session_id)

    found, is_running = context.write(work)
    if as_json:
        render.print_json(QuestionItem.from_approval(found))
        return
    render.print_text(f"{shown.outcome(found, allowed=bool(found.allowed))} {found.id}")
    if not is_running:
        context.note(f"no worker is running the turn; resume session {found.session_id} to continue it")


def _is_running(tx: Transaction, session_id: str) -> bool:
    """Whether a live worker holds the session. The lease of a killed worker stays until a sweep."""
    holder, ours = sessions.get(tx, session_id).lease_worker, current_identity()
    return any(one.id == holder and assess_worker(one, ours).state != "dead" for one in workers.list_alive(tx))


@questions.command()
@click.option("--all", "revoked", is_flag=True, help="Include revoked rules.")
@context.json_option
def rules(*, revoked: bool, as_json: bool) -> None:
    """List the rules that allow calls without asking."""
    found = context.read(approval_rules.list_all, revoked=revoked)
    if as_json:
        render.print_json(ApprovalRuleListResponse([ApprovalRuleItem.from_rule(one) for one in found]))
        return
    if not found:
        render.print_text("No approval rules.")
        return
    rows = [
        [one.id, "revoked" if one.revoked_at else "active", one.requester, one.created_by, one_line(one.text)]
        for one in found
    ]
    render.print_table(["rule", "state", "for", "created by", "allows"], rows, stretch=4)


@questions.command()
@click.argument("rule_id", metavar="ID")
@context.json_option
def revoke(*, rule_id: str, as_json: bool) -> None:
    """Revoke an approval rule. Calls that it allowed need approval again."""

    def work(tx: Transaction, app: "App") -> ApprovalRule:
        return approval_rules.revoke(tx, approval_rules.resolve(tx, rule_id), by=BY, at=app.clock.now())

    found = context.write(work)
    if as_json:
        render.print_json(ApprovalRuleItem.from_rule(found))
        return
    render.print_text(f"Revoked {found.id}")
