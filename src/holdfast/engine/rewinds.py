"""Takes a session back to an earlier point: its conversation, the files that its tools changed, or both.

The event and the present content of each file are committed before a file is touched. A crash in between leaves files as they
were; the same rewind then does the rest. A rewind of files is itself recorded and can be undone.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Literal

import msgspec

from holdfast.engine.admission import rewind
from holdfast.engine.admission.rewind import Rewind
from holdfast.engine.file_rewind import FileStep, find_start, plan_files
from holdfast.engine.services import EngineServices
from holdfast.model.entry import Entry
from holdfast.model.errors import Busy, Invalid
from holdfast.model.event import FilesRestored, TurnStarted
from holdfast.model.file_change import NO_FILE, FilePort, FileState, NewFileChange, RecordedChange, hash_content
from holdfast.model.sanitize import exact_name
from holdfast.model.session import standing
from holdfast.store.database import Transaction
from holdfast.store.repos import file_changes, log, sessions

CloseLeft = Callable[[str], Awaitable[None]]
"""Closes a turn that a dead or departed worker left open."""


class RewindPlan(msgspec.Struct, frozen=True):
    """What a rewind would do. Nothing is changed yet."""

    session_id: str
    to_seq: int
    """The last event that still counts."""
    conversation: Rewind | None
    """None if only files are restored."""
    steps: tuple[FileStep, ...]

    @property
    def acting(self) -> list[FileStep]:
        return [step for step in self.steps if step.acts]


class RewindResult(msgspec.Struct, frozen=True):
    plan: RewindPlan
    failed: dict[str, str]
    """Files that could not be restored, with the reason."""


class Rewinds:
    """One per engine."""

    def __init__(self, services: EngineServices, files: FilePort | None, close_left: CloseLeft) -> None:
        self._services = services
        self._files = files
        self._close_left = close_left

    async def plan_turns(self, session_id: str, *, count: int = 1, why: Literal["undo", "retry"] = "undo") -> Rewind:
        """Plan to take back the newest turns of the conversation. Raises Busy while one runs, Invalid if there are not so many.

        A turn that was left open is closed first, with its messages kept, as new input would close it.
        """
        await self._close_left(session_id)
        return await self._services.database.read(rewind.plan_rewind, session_id, count=count, why=why)

    async def undo_turns(self, session_id: str, *, count: int = 1) -> Rewind:
        """Take back the newest turns; they stay in the log. Raises as `plan_turns`, and Conflict if the session has changed since."""
        planned = await self.plan_turns(session_id, count=count)
        await self._services.database.write(rewind.rewind, planned, at=self._services.clock.now())
        return planned

    async def plan(
        self,
        session_id: str,
        *,
        turns: int = 1,
        message: int | None = None,
        conversation: bool = True,
        files: bool = True,
        force: Collection[str] = (),
    ) -> RewindPlan:
        """Plan to go back before the newest `turns`, or before the turn with event `message`.

        Raises Busy while a turn is open, and Invalid if there is no such turn.
        """
        if message is not None:
            entries = await self._services.database.read(log.read, session_id)
            turns = _turns_from(entries, message)
        back = await self.plan_turns(session_id, count=turns)
        if files:
            await self._record_left(session_id)
        steps = await self._plan_files(session_id, back.to_seq, force) if files else []
        return RewindPlan(session_id, back.to_seq, back if conversation else None, tuple(steps))

    async def plan_undo(self, session_id: str, *, force: Collection[str] = ()) -> RewindPlan:
        """Plan to undo the newest rewind of files; again, to redo it. Raises Invalid if there is none, and Busy."""
        entries = await self._services.database.read(log.read, session_id)
        found = next((entry.seq for entry in reversed(entries) if isinstance(entry.event, FilesRestored)), None)
        if found is None:
            raise Invalid("no files of this session were restored, so there is nothing to undo")
        session = await self._services.database.read(sessions.get, session_id)
        if session.summary.open_turn is not None:
            raise Busy(f"session {session_id} is running a turn; interrupt it first")
        return RewindPlan(session_id, found - 1, None, tuple(await self._plan_files(session_id, found - 1, force)))

    async def apply(self, plan: RewindPlan, *, by: str) -> RewindResult:
        """Commit the rewind, then restore the files. Raises Conflict if the session has changed since, and Busy."""
        at, acting, host = self._services.clock.now(), plan.acting, self._services.identity.host
        changed = await asyncio.to_thread(lambda: file_changes.encode(map(_change, acting)))
        event = _event(plan, by)

        def work(tx: Transaction) -> None:
            if plan.conversation is not None:
                rewind.rewind(tx, plan.conversation, at=at)
            if acting:
                session = log.append_unheld(tx, plan.session_id, [event], at=at)
                file_changes.add(tx, plan.session_id, changed, seq=session.seq, host=host, at=at)

        await self._services.database.write(work)
        return RewindResult(plan, await asyncio.to_thread(self._restore, acting))

    def preview(self, plan: RewindPlan) -> str:
        """The plan as text: what happens to each file, with diffs."""
        assert self._files is not None or not plan.steps, "only a file port plans steps"
        lines = []
        for step in plan.steps:
            if self._files is not None and step.acts:
                lines.append(self._files.diff(step.path, step.now, step.target).rstrip("\n"))
            elif self._files is not None and step.action == "conflict":
                _, _, forced = self._files.diff(step.path, step.now, step.target).partition("\n")
                lines.append(f"! {exact_name(step.path)}: {step.reason}; not restored unless forced")
                lines += ["This would change if it were forced:", forced.rstrip("\n")] if forced else []
            else:
                lines.append(f"{'= ' if step.action == 'keep' else '! '}{exact_name(step.path)}: {step.reason}")
        return "\n".join(lines)

    def _restore(self, steps: Sequence[FileStep]) -> dict[str, str]:
        failed: dict[str, str] = {}
        for step in steps:
            assert self._files is not None, "only a file port plans steps"
            try:
                self._files.restore(step.path, step.now, step.target, step.mode, step.folder)
            except Invalid as e:
                failed[step.path] = str(e)
            except OSError as e:
                failed[step.path] = f"{step.path} cannot be restored: {e.strerror}"
        return failed

    async def _record_left(self, session_id: str) -> None:
        """Record what a command may have changed that a crash cut off."""
        port, at, host = self._files, self._services.clock.now(), self._services.identity.host
        left = None if port is None else await asyncio.to_thread(port.read_left, session_id)
        if port is None or left is None:
            return

        entries = await self._services.database.read(log.read, session_id)
        seq = find_start(entries, left.call_id) or entries[-1].seq
        encoded = await asyncio.to_thread(file_changes.encode, left.changes)
        await self._services.database.write(
            file_changes.add, session_id, encoded, seq=seq, host=host, at=at, only_missing=True
        )
        await asyncio.to_thread(port.forget_left, session_id)

    async def _plan_files(self, session_id: str, to_seq: int, force: Collection[str]) -> list[FileStep]:
        def read(tx: Transaction) -> tuple[list[RecordedChange], dict[str, bytes | None]]:
            changes = file_changes.list_after(tx, session_id, to_seq)
            earliest = {change.path: change.before_hash for change in reversed(changes)}
            return changes, {one: file_changes.get_image(tx, session_id, one) for one in set(earliest.values())}

        port = self._files
        if port is None:
            return []
        changes, images = await self._services.database.read(read)
        paths = dict.fromkeys(change.path for change in changes if not change.problem)
        states: dict[str, FileState] = await asyncio.to_thread(lambda: {path: port.read(path) for path in paths})
        return plan_files(changes, states, images.get, host=self._services.identity.host, force=force)


def _turns_from(entries: Sequence[Entry], seq: int) -> int:
    """How many of the newest turns begin with the one that contains the event. Raises Invalid, also for one taken back before."""
    kept = standing(entries)
    starts = [entry.seq for entry in kept if isinstance(entry.event, TurnStarted)]
    if not starts or seq < starts[0] or all(entry.seq != seq for entry in kept):
        raise Invalid(f"event {seq} belongs to no turn that can be taken back")
    return sum(start > seq for start in starts) + 1


def _change(step: FileStep) -> NewFileChange:
    after = NO_FILE if step.target is None else hash_content(step.target)
    return NewFileChange(path=step.path, before=step.now.data, after_hash=after, mode=step.now.mode, folder="")


def _event(plan: RewindPlan, by: str) -> FilesRestored:
    return FilesRestored(
        to_seq=plan.to_seq,
        files=tuple(step.path for step in plan.acting),
        skipped=tuple(f"{step.path}: {step.reason}" for step in plan.steps if step.action in ("skip", "conflict")),
        conversation=plan.conversation is not None,
        by=by,
    )
