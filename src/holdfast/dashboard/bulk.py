"""Actions on the sessions that are selected in the list: end, trash, restore, export."""

import asyncio
import tempfile
import zipfile
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import IO

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from holdfast.dashboard.context import ACTOR, DashboardContext, get_context
from holdfast.dashboard.forms import action_response, get_fields, require_field
from holdfast.dashboard.session import available_actions, load_session
from holdfast.interop.export.formats import FORMATS, render_session
from holdfast.interop.export.jsonl import export_lines
from holdfast.model.errors import Conflict, HoldfastError, Invalid
from holdfast.model.session import Session
from holdfast.model.text import counted

PICK = "pick-"
"""The prefix of a field that selects a session."""
MAX_PICKED = 500
KEPT_IN_MEMORY = 8 * 2**20
CHUNK = 2**16


async def run_bulk(request: Request) -> Response:
    """Run an action on every selected session that allows it; report how many were left as they are."""
    context, action = get_context(request), require_field(request, "action")
    picked = [name.removeprefix(PICK) for name in get_fields(request) if name.startswith(PICK)]
    if not picked:
        raise Invalid("no session is selected")
    if len(picked) > MAX_PICKED:
        raise Invalid(f"at most {MAX_PICKED} sessions can be selected at a time, not {len(picked)}")
    if action == "export":
        return await _export(context, picked, get_fields(request).get("format", "jsonl"))
    if action not in CHANGES:
        raise Invalid(f"unknown action {action!r}; use {', '.join((*CHANGES, 'export'))}")
    done, kept = await _change_all(context, action, picked)
    left = f"; {counted(len(kept), 'session')} left as before: {kept[0]}" if kept else ""
    if not done:
        raise Conflict(f"no session was changed{left}")
    return action_response(request, f"{DONE[action]} {counted(done, 'session')}{left}", "/")


async def _change_all(context: DashboardContext, action: str, picked: list[str]) -> tuple[int, list[str]]:
    """How many sessions were changed, and for each other one why it was not."""
    done, kept = 0, []
    for session_id in picked:
        try:
            session = await context.database.read(load_session, session_id)
            if action not in available_actions(session):
                kept.append(f"{session.display_title} cannot be {DONE[action].lower()} now")
                continue
            await CHANGES[action](context, session)
            done += 1
        except HoldfastError as e:
            kept.append(str(e))
    return done, kept


async def _end(context: DashboardContext, session: Session) -> None:
    await context.engine.actions.end(session.id, detail=f"requested in {ACTOR}")


async def _trash(context: DashboardContext, session: Session) -> None:
    await context.engine.actions.trash(session.id, reason=f"requested in {ACTOR}")


async def _restore(context: DashboardContext, session: Session) -> None:
    await context.engine.actions.restore(session.id)


CHANGES: dict[str, Callable[[DashboardContext, Session], Awaitable[None]]] = {
    "end": _end,
    "trash": _trash,
    "restore": _restore,
}
DONE = {"end": "Ended", "trash": "Moved to the trash", "restore": "Restored"}


async def _export(context: DashboardContext, picked: list[str], form: str) -> Response:
    """A ZIP file with one file for each session. It is complete before the response begins, so that it never ends early."""
    if form not in FORMATS:
        raise Invalid(f"format must be {', '.join(FORMATS)}, not {form!r}")
    file = tempfile.SpooledTemporaryFile(KEPT_IN_MEMORY)  # noqa: SIM115 - the response closes it
    try:
        with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
            for session_id in picked:
                await _add(context, archive, session_id, form)
    except BaseException:
        file.close()
        raise
    file.seek(0)
    headers = {"content-disposition": 'attachment; filename="holdfast-sessions.zip"'}
    return StreamingResponse(_chunks(file), headers=headers, media_type="application/zip")


async def _add(context: DashboardContext, archive: zipfile.ZipFile, session_id: str, form: str) -> None:
    session = await context.database.read(load_session, session_id)
    if form == "jsonl":
        with archive.open(f"{session.id}.jsonl", "w", force_zip64=True) as member:
            async for text in export_lines(context.database, session.id):
                await asyncio.to_thread(member.write, text.encode("ascii", "backslashreplace"))
        return
    session, entries = await context.engine.read(session.id)
    text = await asyncio.to_thread(render_session, session, entries, form, context.settings.home)
    await asyncio.to_thread(archive.writestr, f"{session.id}.{form}", text.encode("utf-8", "backslashreplace"))


async def _chunks(file: IO[bytes]) -> AsyncIterator[bytes]:
    with file:
        while chunk := file.read(CHUNK):
            yield chunk
