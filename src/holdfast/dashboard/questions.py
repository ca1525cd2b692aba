"""The page of open questions: everything that an approval would run, and the answers."""

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from holdfast.dashboard import templating
from holdfast.dashboard.context import get_context
from holdfast.engine.liveness.handover_question import asked_by
from holdfast.interop import questions
from holdfast.model.approval import rule_kinds
from holdfast.store.database import Transaction
from holdfast.store.repos import approvals, sessions
from holdfast.store.repos.approvals import Approval

MAX_LISTED = 200


async def show_questions(request: Request) -> Response:
    context = get_context(request)
    found = await context.database.read(_list_titled)
    listed = [
        (one, questions.text(one), rule_kinds(one.proposal), questions.prefix(one), title)
        for one, title in found
        if asked_by(one) is None
    ]
    return templating.page_response(request, "questions.html", questions=listed, now=context.now)


def _list_titled(tx: Transaction) -> list[tuple[Approval, str]]:
    """The open questions, each with the title of its session."""
    found = approvals.list_all_unanswered(tx, MAX_LISTED)
    titles = {one.id: one.summary for one in (sessions.get(tx, name) for name in {each.session_id for each in found})}
    return [(one, titles[one.session_id].title or titles[one.session_id].preview or one.session_id) for one in found]


async def send_count(request: Request) -> Response:
    """The number of open questions, for the badge in the menu and the tab title."""
    context = get_context(request)

    async def count() -> bytes:
        return msgspec.json.encode({"open": await context.database.read(approvals.count_unanswered)})

    return Response(await context.responses.get("questions", count), media_type="application/json")
