"""Finds out which files a terminal command has changed, so that a rewind can restore them.

A snapshot of the working directory is taken before a command. When it has ended, the files that differ are recorded like
changes of the file tools, and the snapshot is of no more use. A note names the snapshot of commands that run. If a crash
leaves it, the files that differ later are recorded as changed by that command or by others, so that only a person can
force them.

While several commands of a session run, they share the snapshots: what changes is recorded once.
"""

import asyncio
import json
import logging
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec

from holdfast.model.errors import Invalid, Unavailable
from holdfast.model.file_change import CUT_OFF_HASH, LeftChanges, NewFileChange
from holdfast.model.tool import CallHost, ToolContext
from holdfast.store import durable_file
from holdfast.tasks import run_to_completion
from holdfast.tools.atomic_replace import run_in_thread
from holdfast.tools.shadow_repository import ShadowRepository, Snapshot

logger = logging.getLogger(__name__)
FOLDER = "snapshots"
NOTE = "running.json"
MAX_REPOSITORY_BYTES = 1024**3
"""A larger repository is replaced by a new one, with the present files."""


class SnapshotNote(msgspec.Struct, frozen=True):
    """The snapshot before the commands that run."""

    call_id: str
    worktree: str
    snapshot: Snapshot


class _Running:
    """The commands of one session."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.count = 0
        self.snapshot: Snapshot | None = None
        self.refused = ""
        """Why no snapshot can be taken, which is not tried again."""


class CommandSnapshots:
    """One per process. `path` is the variable PATH."""

    def __init__(self, home: Path, path: str, max_files: int) -> None:
        self._home = Path(os.path.realpath(home))
        self._path = path
        self._max_files = max_files
        self._sessions: dict[str, _Running] = {}

    @asynccontextmanager
    async def around(self, context: ToolContext, notes: list[str]) -> AsyncIterator[None]:
        """Record what changes during the block. If that is not possible, `notes` gets the reason."""
        host = context.host
        if host is None:
            yield
            return
        running = self._sessions.setdefault(context.session_id, _Running())
        running.count += 1
        try:
            async with running.lock:
                await self._begin(running, context, host, notes)
            yield
        finally:
            await run_to_completion(self._end(running, context, host, notes))

    def read_left(self, session_id: str) -> LeftChanges | None:
        """What commands that a crash has cut off may have changed; None if there are none, nothing if nobody knows."""
        folder = self._folder(session_id)
        try:
            note = msgspec.convert(json.loads((folder / NOTE).read_bytes()), type=SnapshotNote)
        except FileNotFoundError:
            return None
        except (ValueError, msgspec.ValidationError) as e:  # a power cut may leave an empty one
            logger.warning("the note of the snapshot of session %s is damaged: %s", session_id, e)
            return LeftChanges("", ())
        repository = self._repository(session_id, note.worktree)
        try:
            changes = repository.compare(note.snapshot, repository.take())
        except (Unavailable, Invalid, OSError) as e:
            logger.warning("the changes of a cut-off command of session %s are unknown: %s", session_id, e)
            changes = []
        return LeftChanges(note.call_id, tuple(_cut_off(change) for change in changes))

    def forget_left(self, session_id: str) -> None:
        """Forget it: it is recorded."""
        (self._folder(session_id) / NOTE).unlink(missing_ok=True)

    async def _begin(self, running: _Running, context: ToolContext, host: CallHost, notes: list[str]) -> None:
        """Take a snapshot, unless there is one for a command that runs already."""
        if running.snapshot is not None or running.refused:
            return
        left = await run_in_thread(lambda: self.read_left(context.session_id))
        if left is not None:
            await host.record_command(left.changes, call_id=left.call_id)
            await run_in_thread(lambda: self.forget_left(context.session_id))
        try:
            running.snapshot = await run_in_thread(lambda: self._take(context))
        except (Unavailable, Invalid, OSError) as e:
            running.refused = str(e)
            notes.append(f"[a rewind of this session does not cover its commands: {e}]")

    def _take(self, context: ToolContext) -> Snapshot:
        """Take the snapshot before a command, and note it. A damaged or large repository is replaced."""
        worktree = os.path.realpath(context.workdir)
        repository = self._repository(context.session_id, worktree)
        if repository.exists and repository.size > MAX_REPOSITORY_BYTES:
            repository.remove()
        try:
            snapshot = repository.take()
        except Unavailable:
            if not repository.exists:
                raise
            repository.remove()
            snapshot = repository.take()
        write_note(self._folder(context.session_id), SnapshotNote(context.call_id, worktree, snapshot))
        return snapshot

    async def _end(self, running: _Running, context: ToolContext, host: CallHost, notes: list[str]) -> None:
        async with running.lock:
            running.count -= 1
            before, running.snapshot = running.snapshot, None
            if before is not None:
                try:
                    after, changes = await run_in_thread(lambda: self._compare(context, before))
                    await host.record_command(changes)
                except (Unavailable, Invalid, OSError) as e:
                    notes.append(f"[a rewind does not cover this command: {e}]")
                else:
                    running.snapshot = after if running.count else None
            if running.snapshot is None:
                await run_in_thread(lambda: self.forget_left(context.session_id))
            if not running.count and not running.refused:
                self._sessions.pop(context.session_id, None)

    def _compare(self, context: ToolContext, before: Snapshot) -> tuple[Snapshot, list[NewFileChange]]:
        repository = self._repository(context.session_id, os.path.realpath(context.workdir))
        after = repository.take()
        return after, repository.compare(before, after)

    def _repository(self, session_id: str, worktree: str) -> ShadowRepository:
        folder = self._folder(session_id)
        durable_file.make_folders(folder, mode=0o700)
        return ShadowRepository(folder / "git", Path(worktree), self._home, self._path, self._max_files)

    def _folder(self, session_id: str) -> Path:
        return self._home / FOLDER / session_id


def write_note(folder: Path, note: SnapshotNote) -> None:
    """Replace the note atomically. Names that are not UTF-8 are escaped."""
    partial = folder / f"{NOTE}.partial"
    partial.write_text(json.dumps(msgspec.to_builtins(note)), "ascii")
    partial.replace(folder / NOTE)


def _cut_off(change: NewFileChange) -> NewFileChange:
    return msgspec.structs.replace(change, after_hash=CUT_OFF_HASH)
