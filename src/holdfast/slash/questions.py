"""/questions and /approvals: open questions of all sessions, and approval rules."""

from holdfast.clock import format_local_time
from holdfast.interop import questions as shown
from holdfast.model.errors import Invalid
from holdfast.model.form import require_reply
from holdfast.model.sanitize import one_line
from holdfast.slash.context import CommandContext
from holdfast.store.database import Transaction
from holdfast.store.repos import approval_rules, approvals

LISTED = 50
LINE = 100
"""Characters of a command in a list; `/questions show ID` shows all of it."""
BY = "/questions"


async def questions(context: CommandContext, rest: str) -> None:
    """List open questions, show one in full, or answer one."""
    action, _, more = rest.partition(" ")
    match action:
        case "" | "list":
            await _list(context)
        case "show" if more.strip():
            found = await context.engine.services.database.read(approvals.find, more.strip())
            context.show(f"{shown.text(found)}\nAnswers: {shown.choices(found)}")
        case "answer" if len(more.split(maxsplit=1)) == 2:
            await _answer(context, *more.split(maxsplit=1))
        case _:
            raise Invalid("use /questions, /questions show ID or /questions answer ID yes|no")


async def _list(context: CommandContext) -> None:
    found = await context.engine.services.database.read(approvals.list_all_unanswered, LISTED)
    lines = [
        f"{one.id}  {format_local_time(one.asked_at)}  session {one.session_id}  {one_line(shown.line(one))[:LINE]}"
        for one in found
    ]
    context.show("\n".join([*lines, "/questions show ID shows one in full"]) if lines else "No open questions.")


async def _answer(context: CommandContext, question_id: str, text: str) -> None:
    found = await context.engine.services.database.read(approvals.find, question_id)
    given = require_reply(found.proposal, text)
    await context.engine.answer(found.call_key, given, by=context.user or BY)
    context.show(f"{shown.outcome(found, allowed=given.allowed)} {found.id}.")


async def rules(context: CommandContext, rest: str) -> None:
    """List the rules that allow calls without asking, or revoke one."""
    action, _, rule_id = rest.partition(" ")
    database, at = context.engine.services.database, context.engine.services.clock.now()
    if action == "revoke" and rule_id.strip():

        def revoke(tx: Transaction) -> str:
            return approval_rules.revoke(
                tx, approval_rules.resolve(tx, rule_id.strip()), by=context.user or BY, at=at
            ).id

        context.show(f"Revoked {await database.write(revoke)}.")
    elif action:
        raise Invalid("use /approvals or /approvals revoke ID")
    else:
        found = await database.read(approval_rules.list_all)
        lines = [f"{one.id}  for {one.requester}, by {one.created_by}  {one_line(one.text)}" for one in found]
        context.show("\n".join([*lines, "/approvals revoke ID revokes one"]) if lines else "No approval rules.")
