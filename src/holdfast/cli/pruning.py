"""Away for good: sessions leave the store, and their folders after them, also when a crash comes between.

A session's folders hold what people sent, long output, and its processes. Their names are written down before the session
goes (`<home>/pruning/<id>`) and crossed out when they are gone; the next prune finishes what one before it could not.
No folder goes that is not written down there.
"""

import asyncio
import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.model.errors import IoFailed, NotFound
from holdfast.store import private, processes, sessions
from holdfast.store.database import Transaction

if TYPE_CHECKING:
    from holdfast.app import App


async def remove(app: "App", session_ids: Sequence[str], before: int) -> list[str]:
    """Those of the sessions that were removed. Each goes in a write of its own, so that nobody waits long.

    Raises IoFailed if a folder cannot be removed; the next call tries again.
    """
    home = app.settings.home
    for note in sorted((home / "pruning").glob("hf-*")):
        await _finish(app, note)
    return [one for one in session_ids if await _remove(app, one, before)]


async def _remove(app: "App", session_id: str, before: int) -> bool:
    ran = await app.database.read(processes.of_session, session_id)
    folders = [f"files/{session_id}", *(f"processes/{process.id}" for process in ran)]
    note = app.settings.home / "pruning" / session_id
    note.parent.mkdir(mode=0o700, exist_ok=True)
    with private.new_file(note, replace=True) as stream:
        json.dump(folders, stream)
    gone = await app.database.write(sessions.prune, session_id, before=before)
    await _finish(app, note)
    return gone


async def _finish(app: "App", note: Path) -> None:
    """Remove the folders that are written down, if their session is gone, and the note."""
    if not await app.database.read(_is_there, note.name):
        await asyncio.to_thread(_clear, app.settings.home, note)
    await asyncio.to_thread(note.unlink)


def _clear(home: Path, note: Path) -> None:
    for folder in json.loads(note.read_text()):
        try:
            if (home / folder).is_dir():
                shutil.rmtree(home / folder)
        except OSError as e:
            raise IoFailed(f"{home / folder} could not be removed: {e}; the next prune tries again") from e


def _is_there(tx: Transaction, session_id: str) -> bool:
    try:
        sessions.get(tx, session_id)
    except NotFound:
        return False
    return True
