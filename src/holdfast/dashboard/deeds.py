"""What a person can do to a session from its page."""

from collections.abc import Awaitable, Callable

from starlette.requests import Request
from starlette.responses import Response

from holdfast.dashboard.desk import Desk, of
from holdfast.dashboard.forms import done, fields, needed, number
from holdfast.dashboard.session import read
from holdfast.engine.opening import Opening
from holdfast.model.counted import counted
from holdfast.model.errors import Conflict, Invalid, NotFound
from holdfast.model.event import CompactionFailed
from holdfast.model.session import Session
from holdfast.store import sessions as stored

BY = "the dashboard"
MODES = ("queue", "steer", "interrupt")
Done = tuple[str, str | None]
"""What to say, and where to go if that is another page."""
Deed = Callable[[Desk, Session, Request], Awaitable[Done]]


async def begin(request: Request) -> Response:
    """A new session, with the first words in it."""
    desk = of(request)
    words = needed(request, "words")
    opened = await desk.engine.open(Opening(source="api", workdir=desk.workdir))
    await desk.engine.admit(opened.session.id, words)
    return done(request, "Begun", f"/ui/s/{opened.session.id}", move=True)


async def do(request: Request) -> Response:
    """One of the deeds below."""
    desk = of(request)
    deed = DEEDS.get(request.path_params["deed"])
    if deed is None:
        raise NotFound(f"there is no deed {request.path_params['deed']!r}")
    session = await desk.database.read(read, request.path_params["id"])
    if session.summary.trashed_at is not None and deed is not restore:
        raise Conflict(f"session {session.id} lies in the trash; restore it first")
    words, elsewhere = await deed(desk, session, request)
    return done(request, words, elsewhere or f"/ui/s/{session.id}", move=elsewhere is not None)


async def say(desk: Desk, session: Session, request: Request) -> Done:
    words, mode = needed(request, "words"), fields(request).get("mode") or desk.settings.agent.busy
    if mode not in MODES:
        raise Invalid(f"words are queued, steer or interrupt, not {mode!r}")
    key = fields(request).get("key", "")[:80]
    await desk.engine.admit(session.id, words, mode=mode, caller=BY, key=key)  # type: ignore[arg-type] # one of MODES
    return "", None


async def interrupt(desk: Desk, session: Session, request: Request) -> Done:
    asked = await desk.engine.interrupt(session.id)
    return ("The turn is asked to end" if asked else "There is no turn to interrupt"), None


async def resume(desk: Desk, session: Session, request: Request) -> Done:
    await desk.engine.resume(session.id)
    return "Its turn is taken up again", None


async def approve(desk: Desk, session: Session, request: Request) -> Done:
    allowed = needed(request, "answer") == "allow"
    turn_id, call_id = needed(request, "turn_id"), needed(request, "call_id")
    reason = fields(request).get("reason", "")[:2000]
    await desk.engine.approve(session.id, turn_id, call_id, allowed=allowed, by=BY, reason=reason)
    return ("Allowed" if allowed else "Refused"), None


async def fork(desk: Desk, session: Session, request: Request) -> Done:
    forked = await desk.engine.fork(session.id, at_seq=number(request, "at"))
    return "Forked", f"/ui/s/{forked.id}"


async def rename(desk: Desk, session: Session, request: Request) -> Done:
    await desk.database.write(stored.rename, session.id, needed(request, "title"), at=desk.now)
    return "Renamed", None


async def pin(desk: Desk, session: Session, request: Request) -> Done:
    pinned = not session.summary.pinned
    await desk.database.write(stored.pin, session.id, pinned=pinned, at=desk.now)
    return ("Pinned: it is never pruned" if pinned else "No longer pinned"), None


async def end(desk: Desk, session: Session, request: Request) -> Done:
    await desk.database.write(stored.end, session.id, "user", at=desk.now)
    return "Ended; it keeps all it holds", None


async def reopen(desk: Desk, session: Session, request: Request) -> Done:
    await desk.database.write(stored.reopen, session.id, at=desk.now, reason=f"asked for in {BY}")
    return "Open again", None


async def compact(desk: Desk, session: Session, request: Request) -> Done:
    told = await desk.engine.compact(session.id, fields(request).get("about", "")[:2000])
    if isinstance(told, CompactionFailed):
        raise Conflict(f"it was not compacted: {told.reason}")
    return f"Compacted to epoch {told.epoch}", None


async def uncompact(desk: Desk, session: Session, request: Request) -> Done:
    undone = await desk.engine.undo_compaction(session.id)
    return f"Undone: back to epoch {undone.epoch}", None


async def undo(desk: Desk, session: Session, request: Request) -> Done:
    taken = await desk.engine.rewind(session.id)
    return f"{counted(taken.messages, 'message')} were taken back; the log keeps them", f"/ui/s/{session.id}"


async def trash(desk: Desk, session: Session, request: Request) -> Done:
    await desk.database.write(stored.trash, session.id, at=desk.now, reason=f"asked for in {BY}")
    return "In the trash", f"/ui/s/{session.id}"


async def restore(desk: Desk, session: Session, request: Request) -> Done:
    await desk.database.write(stored.restore, session.id, at=desk.now)
    return "Out of the trash", f"/ui/s/{session.id}"


DEEDS: dict[str, Deed] = {
    "say": say,
    "interrupt": interrupt,
    "resume": resume,
    "approve": approve,
    "fork": fork,
    "rename": rename,
    "pin": pin,
    "end": end,
    "reopen": reopen,
    "compact": compact,
    "uncompact": uncompact,
    "undo": undo,
    "trash": trash,
    "restore": restore,
}
