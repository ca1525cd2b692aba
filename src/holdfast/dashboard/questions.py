"""The page of open questions: everything that an approval would run, and the answers."""

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from holdfast.dashboard import templating
from holdfast.dashboard.context import get_context
from holdfast.engine.liveness.handover_question import asked_by
from holdfast.interop import questions
from holdfast.model.approval import rule_kinds
from holdfast.store.repos import approvals

MAX_LISTED = 200


async def show_questions(request: Request) -> Response:
    context = get_context(request)
    found = await context.database.read(approvals.list_all_unanswered, MAX_LISTED)
    listed = [
        (one, questions.text(one), rule_kinds(one.proposal), questions.prefix(one))
        for one in found
        if asked_by(one) is None
    ]
    return templating.page_response(request, "questions.html", questions=listed, now=context.now)


async def send_count(request: Request) -> Response:
    """The number of open questions, for the badge in the menu and the tab title."""
    return JSONResponse({"open": await get_context(request).database.read(approvals.count_unanswered)})
