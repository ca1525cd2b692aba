"""Rewind of a session: conversation, files, or both."""

from holdfast.api.context import API_USER
from holdfast.api.native import request_models
from holdfast.api.native.endpoint import EndpointCall, load_session
from holdfast.interop.documents.rewinds import RewindResponse


async def rewind(call: EndpointCall) -> RewindResponse:
    """Take the conversation back, restore the files that tools changed since, or both; `preview` changes nothing."""
    body: request_models.RewindRequest = call.body
    session, rewinds = await load_session(call, trashed=False), call.context.engine.rewinds
    if body.undo:
        plan = await rewinds.plan_undo(session.id, force=body.force)
    else:
        plan = await rewinds.plan(
            session.id,
            turns=body.turns,
            message=body.to,
            conversation=body.what != "files",
            files=body.what != "conversation",
            force=body.force,
        )
    preview = rewinds.preview(plan)
    failed = {} if body.preview else (await rewinds.apply(plan, by=API_USER)).failed
    return RewindResponse.from_plan(plan, preview, done=not body.preview, failed=failed)
