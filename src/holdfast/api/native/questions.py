"""Open questions of all sessions, and the approval rules created by answers."""

import json

from holdfast.api.context import API_USER
from holdfast.api.errors import ApiError
from holdfast.api.native import request_models
from holdfast.api.native.endpoint import EndpointCall
from holdfast.engine.liveness.handover_question import asked_by
from holdfast.interop.documents.questions import (
    ApprovalRuleItem,
    ApprovalRuleListResponse,
    QuestionItem,
    QuestionListResponse,
)
from holdfast.model.answer import Answer
from holdfast.model.form import parse_reply
from holdfast.store.database import Transaction
from holdfast.store.repos import approval_rules, approvals, ownership, sessions
from holdfast.store.repos.approvals import Approval


async def list_(call: EndpointCall) -> QuestionListResponse:
    """List the open questions of all sessions, oldest first."""
    query: request_models.ListQuestionsRequest = call.query
    found = await call.context.database.read(approvals.list_all_unanswered, query.limit)
    count = await call.context.database.read(approvals.count_unanswered)
    return QuestionListResponse([QuestionItem.from_approval(one) for one in found], count)


async def get(call: EndpointCall) -> QuestionItem:
    """Get a question with everything that an approval would run."""
    return QuestionItem.from_approval(await call.context.database.read(approvals.find, call.path_param("id")))


async def answer(call: EndpointCall) -> QuestionItem:
    """Answer a question, once; its turn continues immediately."""
    database = call.context.database
    found = await database.read(approvals.find, call.path_param("id"))
    given = _given(call.body, found)
    await call.context.engine.answer(found.call_key, given, by=API_USER)
    if given.allowed and (worker_id := asked_by(found)) is not None:
        await database.write(_hand_over, found, worker_id)
    return QuestionItem.from_approval(await database.read(approvals.find, found.id))


def _given(body: request_models.AnswerQuestionRequest, found: Approval) -> Answer:
    """Parse the answer in the body: `allowed`, a typed text, or the values of a form."""
    if body.content is not None:
        if not found.proposal.form or body.allowed is False or body.answer is not None:
            raise ApiError(
                400, "invalid_request", "content is the accepted answer to a question with a form", "content"
            )
        return Answer(allowed=True, content=json.dumps(body.content))
    if body.allowed is None and body.answer is None:
        raise ApiError(400, "invalid_request", "give allowed (true or false) or answer (a text such as yes)", "allowed")
    if body.allowed is not None and body.answer is not None:
        raise ApiError(400, "invalid_request", "give allowed or answer, not both", "answer")
    if body.allowed is None:
        parsed = parse_reply(found.proposal, body.answer or "")
        if parsed is None:
            raise ApiError(400, "invalid_value", f"{body.answer!r} is not an answer; use yes or no", "answer")
        if found.proposal.form:
            return parsed
        reason = body.reason or parsed.reason
        scope = parsed.scope if body.scope == "once" else body.scope
        match = parsed.match if body.match == "exact" else body.match
        return Answer(allowed=parsed.allowed, scope=scope, match=match, prefix=tuple(body.prefix), reason=reason)
    return Answer(
        allowed=body.allowed, scope=body.scope, match=body.match, prefix=tuple(body.prefix), reason=body.reason
    )


def _hand_over(tx: Transaction, found: Approval, worker_id: str) -> bool:
    owner = sessions.get(tx, found.session_id).owner_worker
    return owner is not None and ownership.hand_over(tx, found.session_id, owner, worker_id)


async def list_rules(call: EndpointCall) -> ApprovalRuleListResponse:
    """List approval rules, newest first."""
    query: request_models.ListRulesRequest = call.query
    found = await call.context.database.read(approval_rules.list_all, revoked=query.revoked)
    return ApprovalRuleListResponse([ApprovalRuleItem.from_rule(one) for one in found])


async def revoke_rule(call: EndpointCall) -> ApprovalRuleItem:
    """Revoke an approval rule: its calls need approval again."""
    at, ref = call.context.engine.services.clock.now(), call.path_param("id")

    def work(tx: Transaction) -> ApprovalRuleItem:
        return ApprovalRuleItem.from_rule(
            approval_rules.revoke(tx, approval_rules.resolve(tx, ref), by=API_USER, at=at)
        )

    return await call.context.database.write(work)
