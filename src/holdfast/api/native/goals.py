"""The goal of a session: read, set, pause, resume and clear it."""

from holdfast.api.context import API_USER
from holdfast.api.errors import ApiError
from holdfast.api.native import request_models
from holdfast.api.native.endpoint import EndpointCall, EndpointReply, load_session
from holdfast.api.native.response_models import GoalResponse
from holdfast.engine.admission.admit import Admission, UserInput, admit
from holdfast.engine.goals.actions import GoalChanges, find_queued, first_message, is_set
from holdfast.engine.submission import AdmitInTransaction
from holdfast.interop.documents.sessions import GoalItem
from holdfast.model.ids import TURN
from holdfast.store.database import Transaction


async def get(call: EndpointCall) -> GoalResponse:
    """Get the newest goal of the session, also one that has ended."""
    session = await load_session(call)
    return await _describe(call, session.id)


async def put(call: EndpointCall) -> EndpointReply:
    """Set the goal and start working on it; the same goal again changes nothing while it is active or queued."""
    body: request_models.GoalRequest = call.body
    session, engine = await load_session(call, trashed=False), call.context.engine
    changes = GoalChanges(max_turns=body.max_turns, max_hours=body.max_hours, max_cost=body.max_cost)
    planned = await engine.goals.plan(session.id, body.text, by=API_USER, changes=changes)
    services, turn_id = engine.services, engine.services.ids.make(TURN)
    message = UserInput(turn_id=turn_id, parts=first_message(planned), before=(planned,))

    def admit_once(tx: Transaction) -> Admission | None:
        if is_set(tx, session.id, planned.text):
            return None
        return admit(tx, session.id, message, worker_id=services.worker_id, at=services.clock.now())

    submitted = await engine.submit(AdmitInTransaction(admit_once, session.id))
    if submitted is not None:
        is_queued = not submitted.admission.began
    elif (queued := await services.database.read(find_queued, session.id, planned.text)) is not None:
        turn_id, is_queued = queued, True
    else:
        return EndpointReply(await _describe(call, session.id), 200, {})
    reply = await _describe(call, session.id, turn_id=turn_id, queued=is_queued)
    return EndpointReply(reply, 202, {"location": f"/v1/sessions/{session.id}/turns/{turn_id}"})


async def patch(call: EndpointCall) -> GoalResponse:
    """Pause the goal, or resume a paused one. A turn that runs goes on."""
    body: request_models.ChangeGoalRequest = call.body
    session, goals = await load_session(call, trashed=False), call.context.engine.goals
    await (goals.pause(session.id, by=API_USER) if body.state == "paused" else goals.resume(session.id, by=API_USER))
    return await _describe(call, session.id)


async def delete(call: EndpointCall) -> GoalResponse:
    """Clear the goal: the session does not continue with it. A turn that runs goes on."""
    session = await load_session(call, trashed=False)
    await call.context.engine.goals.clear(session.id, by=API_USER)
    return await _describe(call, session.id)


async def _describe(
    call: EndpointCall, session_id: str, *, turn_id: str | None = None, queued: bool = False
) -> GoalResponse:
    goal = await call.context.engine.goals.get(session_id)
    if goal is None and turn_id is None:
        raise ApiError(404, "goal_not_found", f"session {session_id} has no goal; PUT sets one")
    return GoalResponse(session_id, None if goal is None else GoalItem.from_goal(goal), turn_id, queued)
