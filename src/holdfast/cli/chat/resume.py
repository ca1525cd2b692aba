"""Finds the session that `holdfast chat` resumes."""

from pathlib import Path

from holdfast.cli import context
from holdfast.cli.chat.context import bookmark_name
from holdfast.engine.admission.open_session import OpenRequest
from holdfast.engine.engine import Engine
from holdfast.model.entry import Entry
from holdfast.model.errors import NotFound
from holdfast.model.session import Session
from holdfast.store.repos import sessions


async def find_session(engine: Engine, opening: OpenRequest, *, latest: bool) -> tuple[Session, list[Entry]] | None:
    """Find the session to resume and verify its log; None starts a new one. Raises NotFound, Ambiguous or Corrupt."""
    ref = opening.ref
    if latest:
        workdir = opening.workdir or Path.cwd()
        ref = await engine.actions.find_bookmark(bookmark_name(workdir))
        if ref is None:
            raise NotFound(f"no chat in {workdir} yet; choose one of all chats with 'holdfast chat --resume'")
    if not ref:
        return None
    found = await engine.services.database.read(sessions.resolve, ref)
    context.note_ambiguous(ref, found)
    summary = found.session.summary
    if (opening.model or summary.model, opening.mode or summary.mode) != (summary.model, summary.mode):
        await engine.open(
            OpenRequest(ref=found.session.id, source=opening.source, model=opening.model, mode=opening.mode)
        )
    return await engine.read(found.session.id)
