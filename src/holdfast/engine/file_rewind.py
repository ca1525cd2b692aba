"""Decides how files are restored to a point of a session. Pure.

A file is restored only if it is as the session left it. If others have changed it, also between two changes of the session,
it is skipped unless a person forces it by name.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import pairwise
from typing import Literal

import msgspec

from holdfast.model.entry import Entry
from holdfast.model.event import ToolStarted
from holdfast.model.file_change import CUT_OFF_HASH, NO_FILE, FileState, RecordedChange

OTHERS = "it was changed by others since"
CUT_OFF = "a command that a crash cut off, or others since, changed it"


class FileStep(msgspec.Struct, frozen=True):
    """What happens to one file."""

    path: str
    action: Literal["restore", "remove", "keep", "conflict", "skip"]
    """`keep`: it already has that content. `conflict`: it may be forced. `skip`: it cannot be restored."""
    reason: str = ""
    now: FileState = FileState("missing")
    target: bytes | None = None
    mode: int = 0
    folder: str = ""

    @property
    def acts(self) -> bool:
        return self.action in ("restore", "remove")


def plan_files(
    changes: Sequence[RecordedChange],
    states: Mapping[str, FileState],
    image: Callable[[str], bytes | None],
    *,
    host: str,
    force: Collection[str] = (),
) -> list[FileStep]:
    """The steps that restore every changed file, in the order of their first change."""
    by_path: dict[str, list[RecordedChange]] = {}
    for change in changes:
        by_path.setdefault(change.path, []).append(change)
    return [
        _plan_file(path, found, states.get(path, FileState("missing")), image, host, forced=path in force)
        for path, found in by_path.items()
    ]


def _plan_file(
    path: str,
    found: Sequence[RecordedChange],
    now: FileState,
    image: Callable[[str], bytes | None],
    host: str,
    *,
    forced: bool,
) -> FileStep:
    first, last = found[0], found[-1]
    target = None if first.before_hash == NO_FILE else image(first.before_hash)
    problem = _problem(first, last, host) or now.problem
    if not problem and target is None and first.before_hash != NO_FILE:
        problem = "its earlier content is no longer stored"
    if problem:
        return FileStep(path, "skip", problem)
    if now.digest == first.before_hash:
        return FileStep(path, "keep", "it already has its earlier content", now)
    step = FileStep(path, "remove" if target is None else "restore", "", now, target, first.mode, first.folder)
    if not forced and (now.digest not in (last.before_hash, last.after_hash) or _was_changed_between(found)):
        reason = CUT_OFF if last.after_hash == CUT_OFF_HASH else OTHERS
        return msgspec.structs.replace(step, action="conflict", reason=reason)
    return step


def _problem(first: RecordedChange, last: RecordedChange, host: str) -> str:
    if first.problem:
        return first.problem
    return f"it is on another machine: {last.host}" if last.host != host else ""


def _was_changed_between(found: Sequence[RecordedChange]) -> bool:
    """Whether a change found another content than the one before had left. A change that a crash prevented left the old one."""
    return any(later.before_hash not in (one.after_hash, one.before_hash) for one, later in pairwise(found))


def find_start(entries: Sequence[Entry], call_id: str) -> int | None:
    """The number of the event that the newest call with this id has started."""
    starts = (
        entry.seq
        for entry in reversed(entries)
        if isinstance(entry.event, ToolStarted) and entry.event.call_id == call_id
    )
    return next(starts, None)
