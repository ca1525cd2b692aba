"""Deletes sessions permanently: first from the store, then their directories, even across a crash.

The directories of a session contain files that users sent, long tool output, process files, and files that tools made.
Their names are written to a note (`<home>/pruning/<id>`) before the session is deleted, and the note is removed once they
are deleted. The next prune finishes the notes that are left. Only directories named in a note are deleted.

Sessions can share a working directory: those of one channel do, and a session can be opened in the directory of another.
It is deleted only if no session uses it, in the trash or not. It is renamed first and checked again, because a new message
can start a session of the channel at any moment.
"""

import asyncio
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from holdfast.model.errors import IoFailed, NotFound
from holdfast.store import atomic_file
from holdfast.store.database import Transaction
from holdfast.store.repos import processes, session_pruning, sessions
from holdfast.tools.sensitive_paths import WORK
from holdfast.wiring.workdir import own_workdir_name

if TYPE_CHECKING:
    from holdfast.wiring.store import App


class WorkDirectory(msgspec.Struct, frozen=True):
    """A working directory in the home, and the channel whose sessions share it."""

    folder: str
    channel: str | None = None


Note = list[str | WorkDirectory]
"""What to delete with a session: its own directories, and working directories that others may use."""


async def remove(app: "App", session_ids: Sequence[str], before: int) -> list[str]:
    """Delete the sessions; returns the ids of those deleted. Each is one short write.

    Raises IoFailed if a directory cannot be deleted; the next call tries again.
    """
    home = app.settings.home
    for note in sorted((home / "pruning").glob("hf-*")):
        await _finish(app, note)
    return [one for one in session_ids if await _remove(app, one, before)]


async def _remove(app: "App", session_id: str, before: int) -> bool:
    try:
        directories = await app.database.read(_directories, session_id)
    except NotFound:  # another prune deleted it
        return False
    note = app.settings.home / "pruning" / session_id
    note.parent.mkdir(mode=0o700, exist_ok=True)
    with atomic_file.new_file(note, replace=True) as stream:
        stream.write(msgspec.json.encode(directories).decode())
    deleted = await app.database.write(session_pruning.prune, session_id, before=before)
    await _finish(app, note)
    return deleted


def _directories(tx: Transaction, session_id: str) -> Note:
    session = sessions.get(tx, session_id)
    own = [
        f"files/{session_id}",
        f"snapshots/{session_id}",
        *(f"processes/{process.id}" for process in processes.list_by_session(tx, session_id)),
    ]
    shared = WorkDirectory(f"{WORK}/{own_workdir_name(session)}", session.summary.channel)
    return [*own, WorkDirectory(f"{WORK}/{session_id}"), *([shared] if shared.channel is not None else [])]


async def _finish(app: "App", note: Path) -> None:
    """Delete the directories of a note, if their session is deleted, and then the note."""
    if not await app.database.read(_exists, note.name):
        for directory in await asyncio.to_thread(_read, note):
            if isinstance(directory, WorkDirectory):
                await _remove_work(app, directory)
            else:
                await asyncio.to_thread(_remove_tree, app.settings.home / directory)
    await asyncio.to_thread(note.unlink)


async def _remove_work(app: "App", directory: WorkDirectory) -> None:
    path = app.settings.home / directory.folder
    aside = path.with_name(f".removed-{path.name}")
    if path.is_dir() and not await _is_used(app, directory):
        if path.is_symlink():
            raise IoFailed(f"cannot delete {path}: it is a symbolic link; remove it, then prune again")
        await asyncio.to_thread(_remove_tree, aside)  # left by an interrupted prune
        await asyncio.to_thread(_rename, path, aside)
        if await _is_used(app, directory) and not path.exists():
            await asyncio.to_thread(_rename, aside, path)
            return
    await asyncio.to_thread(_remove_tree, aside)


async def _is_used(app: "App", directory: WorkDirectory) -> bool:
    if _is_within(app.settings.terminal.workdir, app.settings.home / directory.folder):
        return True
    return await app.database.read(session_pruning.uses_directory, f"/{directory.folder}", directory.channel)


def _is_within(configured: str | None, path: Path) -> bool:
    """Whether the configured directory is this one or inside it."""
    if not configured:
        return False
    return Path(configured).expanduser().resolve().is_relative_to(path.resolve())


def _read(note: Path) -> Note:
    return msgspec.json.decode(note.read_bytes(), type=Note)


def _rename(path: Path, target: Path) -> None:
    try:
        path.rename(target)
    except OSError as e:
        raise IoFailed(f"cannot delete {path}: {e}; the next prune tries again") from e


def _remove_tree(path: Path) -> None:
    try:
        if path.is_dir():
            shutil.rmtree(path)
    except OSError as e:
        raise IoFailed(f"cannot delete {path}: {e}; the next prune tries again") from e


def _exists(tx: Transaction, session_id: str) -> bool:
    try:
        sessions.get(tx, session_id)
    except NotFound:
        return False
    return True
