"""Actions on a session, started from its page."""

from collections.abc import Awaitable, Callable

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from holdfast.dashboard.context import ACTOR, DashboardContext, get_context
from holdfast.dashboard.forms import action_response, get_fields, parse_int_field, require_field
from holdfast.dashboard.session import load_session
from holdfast.engine.admission.open_session import OpenRequest
from holdfast.engine.submission import NewMessage
from holdfast.model.answer import Answer
from holdfast.model.errors import Conflict, Invalid, NotFound
from holdfast.model.event import CompactionFailed
from holdfast.model.form import require_reply
from holdfast.model.mode import parse_mode
from holdfast.model.session import Session
from holdfast.model.text import counted
from holdfast.store.repos import approvals

ANSWERS = {
    "allow": Answer(allowed=True),
    "session": Answer(allowed=True, scope="session"),
    "always": Answer(allowed=True, scope="always"),
    "prefix": Answer(allowed=True, scope="always", match="prefix"),
    "tool": Answer(allowed=True, scope="always", match="tool"),
}
"""The answer of each button below a question; any other button denies."""
BUSY_MODES = ("queue", "steer", "interrupt")
ActionResult = tuple[str, str | None]
"""The notice to show, and the URL to go to, if any."""
Action = Callable[[DashboardContext, Session, Request], Awaitable[ActionResult]]


async def start_session(request: Request) -> Response:
    """Start a session with a first message."""
    context = get_context(request)
    text = require_field(request, "words")
    opened = await context.engine.open(OpenRequest(source="api"))
    await context.engine.submit(NewMessage(opened.session.id, text))
    return action_response(request, "Started", f"/ui/s/{opened.session.id}", move=True)


async def run_action(request: Request) -> Response:
    """Run the action of ACTIONS that the URL names."""
    context = get_context(request)
    action = ACTIONS.get(request.path_params["action"])
    if action is None:
        raise NotFound(f"unknown action {request.path_params['action']!r}")
    session = await context.database.read(load_session, request.path_params["id"])
    if session.summary.trashed_at is not None and action is not restore:
        raise Conflict(f"session {session.id} is in the trash; restore it first")
    notice, target = await action(context, session, request)
    return action_response(request, notice, target or f"/ui/s/{session.id}", move=target is not None)


async def send_message(context: DashboardContext, session: Session, request: Request) -> ActionResult:
    text, mode = require_field(request, "words"), get_fields(request).get("mode") or context.settings.agent.busy
    if mode not in BUSY_MODES:
        raise Invalid(f"mode must be queue, steer or interrupt, not {mode!r}")
    key = get_fields(request).get("key", "")[:80]
    message = NewMessage(session.id, text, mode=mode, caller=ACTOR, key=key)  # type: ignore[arg-type] # one of BUSY_MODES
    await context.engine.submit(message)
    return "", None


async def interrupt(context: DashboardContext, session: Session, request: Request) -> ActionResult:
    interrupting = await context.engine.interrupt(session.id)
    return ("Interrupting the turn" if interrupting else "No turn is running"), None


async def resume(context: DashboardContext, session: Session, request: Request) -> ActionResult:
    await context.engine.resume(session.id)
    return "Resuming the turn", None


async def retry(context: DashboardContext, session: Session, request: Request) -> ActionResult:
    """Discard the failed turn and send its message again."""
    back = await context.engine.rewinds.plan_turns(session.id, why="retry")
    await context.engine.submit(NewMessage(session.id, back.parts, caller=ACTOR, instead=back))
    return "Retrying the turn", f"/ui/s/{session.id}"


async def approve(context: DashboardContext, session: Session, request: Request) -> ActionResult:
    choice = ANSWERS.get(require_field(request, "answer"), Answer(allowed=False))
    turn_id, call_id = require_field(request, "turn_id"), require_field(request, "call_id")
    text = get_fields(request).get("reason", "")[:2000]
    question = await context.database.read(approvals.get, session.id, turn_id, call_id)
    if choice.allowed and question is not None and question.proposal.form:
        answer = require_reply(question.proposal, text or "yes")
    else:
        answer = msgspec.structs.replace(choice, reason=text)
    await context.engine.answer((session.id, turn_id, call_id), answer, by=ACTOR)
    return ("Allowed" if choice.allowed else "Denied"), None


async def fork(context: DashboardContext, session: Session, request: Request) -> ActionResult:
    forked = await context.engine.actions.fork(session.id, at_seq=parse_int_field(request, "at"))
    return "Forked", f"/ui/s/{forked.id}"


async def rename(context: DashboardContext, session: Session, request: Request) -> ActionResult:
    await context.engine.actions.rename(session.id, require_field(request, "title"))
    return "Renamed", None


async def pin(context: DashboardContext, session: Session, request: Request) -> ActionResult:
    pinned = not session.summary.pinned
    await context.engine.actions.pin(session.id, pinned=pinned)
    return ("Pinned; it is never pruned" if pinned else "Unpinned"), None


async def set_mode(context: DashboardContext, session: Session, request: Request) -> ActionResult:
    mode = parse_mode(require_field(request, "mode"))
    await context.engine.actions.set_mode(session.id, mode, by=ACTOR)
    return f"Permission mode: {mode}", None


async def end(context: DashboardContext, session: Session, request: Request) -> ActionResult:
    await context.engine.actions.end(session.id, detail=f"requested in {ACTOR}")
    return "Ended", None


async def reopen(context: DashboardContext, session: Session, request: Request) -> ActionResult:
    await context.engine.actions.reopen(session.id, reason=f"requested in {ACTOR}")
    return "Reopened", None


async def compact(context: DashboardContext, session: Session, request: Request) -> ActionResult:
    result = await context.engine.compact(session.id, get_fields(request).get("about", "")[:2000])
    if isinstance(result, CompactionFailed):
        raise Conflict(f"not compacted: {result.reason}")
    return f"Compacted; the context is now at epoch {result.epoch}", None


async def uncompact(context: DashboardContext, session: Session, request: Request) -> ActionResult:
    undone = await context.engine.undo_compaction(session.id)
    return f"Compaction undone; the context is back at epoch {undone.epoch}", None


async def undo(context: DashboardContext, session: Session, request: Request) -> ActionResult:
    rewound = await context.engine.rewinds.undo_turns(session.id)
    return f"{counted(rewound.messages, 'message')} undone; the log keeps them", f"/ui/s/{session.id}"


async def trash(context: DashboardContext, session: Session, request: Request) -> ActionResult:
    await context.engine.actions.trash(session.id, reason=f"requested in {ACTOR}")
    return "Moved to trash", f"/ui/s/{session.id}"


async def restore(context: DashboardContext, session: Session, request: Request) -> ActionResult:
    await context.engine.actions.restore(session.id)
    return "Restored", f"/ui/s/{session.id}"


ACTIONS: dict[str, Action] = {
    "say": send_message,
    "interrupt": interrupt,
    "resume": resume,
    "retry": retry,
    "approve": approve,
    "fork": fork,
    "rename": rename,
    "pin": pin,
    "mode": set_mode,
    "end": end,
    "reopen": reopen,
    "compact": compact,
    "uncompact": uncompact,
    "undo": undo,
    "trash": trash,
    "restore": restore,
}
