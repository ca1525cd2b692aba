"""Replaces files atomically, so that a crash leaves the old text or the new, and reports what changed."""

import asyncio
import contextlib
import difflib
import os
import re
import stat
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import TypeVar
from weakref import WeakValueDictionary

import msgspec

from holdfast.model.errors import Invalid, Unavailable
from holdfast.model.file_change import TOO_LARGE, NewFileChange, hash_content
from holdfast.model.finding import Finding
from holdfast.model.text import counted
from holdfast.model.tool import Preview, ToolContext, ToolOutput
from holdfast.store import durable_file
from holdfast.tasks import run_to_completion
from holdfast.tools.backends.files import BackendFiles
from holdfast.tools.backends.port import TerminalBackend
from holdfast.tools.backends.registry import Backends, only_local
from holdfast.tools.file_snapshot import FileSnapshot, encode_text, take_snapshot
from holdfast.tools.home_guard import check_write, find_write_risks
from holdfast.tools.paths import display_path, make_temporary_name, real_path, resolve
from holdfast.tools.safe_open import open_directory_verified

DIFF_LINES = 200
DIFF_CHARS = 12_000
COMPARED_LINES = 2_000
"""Longer changes are counted, not compared: the time of a comparison grows with the square of the lines."""

PRIVATE = Path("/tmp")  # noqa: S108 - private in the backend bubblewrap
LINES = re.compile(r"[^\n]*\n|[^\n]+")

T = TypeVar("T")


class FileChange(msgspec.Struct, frozen=True):
    """The new content of a file. `old` is None if the present content cannot be shown as text."""

    old: str | None
    new: str
    before: FileSnapshot
    report: str
    """The tool result after the change."""

    def preview(self, name: str) -> str:
        """The whole change, for a person to approve: a unified diff, or the content if there is nothing to compare it with."""
        if self.before.size is None:
            return f"new file {name}\n{_as_added_lines(self.new)}"
        if self.old is None:
            return f"{name} is replaced ({self.before.size:,} bytes that are not text). New content:\n{_as_added_lines(self.new)}"
        return full_diff(self.old, self.new, name)


Plan = Callable[[FileSnapshot, str], FileChange]
"""Decides the change of a file from its content and its displayed name. Raises Invalid if there is none."""


class FileEditor:
    """Changes files, one writer at a time per file, so that concurrent calls do not overwrite each other."""

    def __init__(self, *, home: Path | None = None, backends: Backends | None = None) -> None:
        self._home = home
        self._backends = backends or only_local()
        self._locks: WeakValueDictionary[Path, asyncio.Lock] = WeakValueDictionary()

    @contextlib.asynccontextmanager
    async def lock(self, path: Path) -> AsyncIterator[Path]:
        """Lock the file that the path resolves to."""
        real = Path(await asyncio.to_thread(os.path.realpath, path))
        async with self._locks.setdefault(real, asyncio.Lock()):
            yield real

    def risk(self, path: str, context: ToolContext) -> tuple[Finding, ...]:
        """Why changing this file needs approval."""
        return find_write_risks(path, context, self._home)

    async def change(self, named: str, context: ToolContext, plan: Plan, *, action: str) -> ToolOutput:
        """Make the change that `plan` returns, under the lock and to completion.

        A path that needed no approval must not resolve to a file that needs it. An approved change is made only if it
        is still the one that was shown.
        """
        try:
            backend = self._backends.of(context)
            if not backend.is_direct:
                return await self._change_inside(backend, named, context, plan)
            path = resolve(named, context.workdir)
            async with self.lock(path) as real:
                check_write(named, real, context, self._home)
                change = await run_in_thread(lambda: _plan_change(path, real, context, plan))
                await record_change(context, real, change)
                return await run_in_thread(lambda: _apply(change, real))
        except (Invalid, Unavailable) as e:
            return ToolOutput.say(str(e), ok=False)
        except OSError as e:
            return ToolOutput.say(f"{named} could not be {action}: {e.strerror}", ok=False)

    async def _change_inside(
        self, backend: TerminalBackend, named: str, context: ToolContext, plan: Plan
    ) -> ToolOutput:
        """As `change`, by programs that run in the backend."""
        files = BackendFiles(backend, context)
        path = await files.resolve(named)
        if backend.shares_files:
            check_write(named, await asyncio.to_thread(real_path, path), context, self._home)
        async with self._locks.setdefault(Path("/", context.session_id, *path.parts[1:]), asyncio.Lock()):
            change = plan(await files.snapshot(path), display_path(path, backend.workdir(context)))
            await asyncio.to_thread(_check_approved, change, path, context)
            is_private = path.is_relative_to(PRIVATE) or not backend.shares_files
            elsewhere = (
                f"it is in the terminal backend {backend.name}, where files are not restored" if is_private else ""
            )
            await record_change(context, path if elsewhere else real_path(path), change, elsewhere)
            await run_to_completion(files.replace(path, encode_text(change.new), change.before))
            return ToolOutput.say(change.report)

    async def preview(self, named: str, context: ToolContext, plan: Plan) -> Preview:
        """The change as it would be made now. Raises Invalid if it would fail."""
        try:
            backend = self._backends.of(context)
            if not backend.is_direct:
                files = BackendFiles(backend, context)
                path = await files.resolve(named)
                change = plan(await files.snapshot(path), display_path(path, backend.workdir(context)))
                return Preview(text=change.preview(str(path)))
            return await asyncio.to_thread(_preview, resolve(named, context.workdir), context, plan)
        except OSError as e:
            raise Invalid(f"{named} cannot be read: {e.strerror}") from e
        except Unavailable as e:
            raise Invalid(str(e)) from e


def _plan_change(path: Path, real: Path, context: ToolContext, plan: Plan) -> FileChange:
    """The change as it would be made now. Raises Invalid if it is not the one that was approved."""
    change = plan(take_snapshot(real), display_path(path, context.workdir))
    _check_approved(change, real, context)
    return change


def _preview(path: Path, context: ToolContext, plan: Plan) -> Preview:
    real = Path(os.path.realpath(path))
    return Preview(text=plan(take_snapshot(real), display_path(path, context.workdir)).preview(str(real)))


def _apply(change: FileChange, path: Path) -> ToolOutput:
    replace_file(path, change.new, change.before.status)
    return ToolOutput.say(change.report)


async def record_change(context: ToolContext, path: Path, change: FileChange, problem: str = "") -> None:
    """Store the content of the file before it is changed. `problem` says why it cannot be restored."""
    if context.host is not None:
        await context.host.record_change(await asyncio.to_thread(_describe_change, path, change, problem))


def _describe_change(path: Path, change: FileChange, problem: str) -> NewFileChange:
    before, folder, mode = change.before, "", 0
    if not problem and before.size is None:
        missing = [one for one in path.parents if not one.exists()]
        folder = str(missing[-1]) if missing else ""
    elif not problem:
        mode = stat.S_IMODE((before.status or path.stat()).st_mode)
        problem = TOO_LARGE if before.data is None else ""
    return NewFileChange(
        path=str(path),
        before=None if problem else before.data,
        after_hash=hash_content(encode_text(change.new)),
        mode=mode,
        folder=folder,
        problem=problem,
    )


def _check_approved(change: FileChange, path: Path, context: ToolContext) -> None:
    if context.approved and context.approved != Preview(text=change.preview(str(path))).digest:
        raise Invalid(f"{path} was modified after the change was approved; nothing was written. Read it again")


async def run_in_thread(work: Callable[[], T]) -> T:
    """Run it in a thread; a cancellation takes effect only when it has finished."""
    return await run_to_completion(asyncio.to_thread(work))


def replace_file(path: Path, text: str, before: os.stat_result | None) -> None:
    """Replace the file, which had the status `before` (None: no file), by the text; mode and owner are kept.

    Durable when it returns. Raises Invalid if the file has changed since, and OSError.
    """
    data = encode_text(text)
    durable_file.make_folders(path.parent)
    with open_directory_verified(path.parent) as folder:
        temporary = make_temporary_name()
        try:
            _write_new(temporary, folder, data, before)
            _check_unchanged(path, folder, before)
            os.replace(temporary, path.name, src_dir_fd=folder, dst_dir_fd=folder)
        except BaseException:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(temporary, dir_fd=folder)
            raise
    durable_file.sync_folder(path.parent)


def _write_new(name: str, folder: int, data: bytes, before: os.stat_result | None) -> None:
    """Write a new file in an open folder, with the mode and owner of the file that it will replace."""
    mode = 0o666 if before is None else stat.S_IMODE(before.st_mode)
    file = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode, dir_fd=folder)
    with os.fdopen(file, "wb") as stream:
        if before is not None:
            _keep_owner(file, before)
            os.fchmod(file, mode)
        stream.write(data)
        stream.flush()
        os.fsync(file)


def _keep_owner(file: int, before: os.stat_result) -> None:
    if os.geteuid() == 0:
        os.fchown(file, before.st_uid, before.st_gid)


def _check_unchanged(path: Path, folder: int, before: os.stat_result | None) -> None:
    try:
        now = os.stat(path.name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return
    signature = (now.st_ino, now.st_size, now.st_mtime_ns)
    if before is None or signature != (before.st_ino, before.st_size, before.st_mtime_ns):
        raise Invalid(f"{path} was changed by another program meanwhile; read it again")


def short_diff(old: str, new: str, name: str) -> str:
    """A unified diff, truncated."""
    compared = _compare(old, new, name)
    return compared if isinstance(compared, str) else _truncate(compared)


def full_diff(old: str, new: str, name: str) -> str:
    """A complete unified diff; for a change too large to compare, the whole new content."""
    compared = _compare(old, new, name)
    if isinstance(compared, list):
        return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in compared)
    return compared if old == new else f"{name}: {compared}. New content:\n{_as_added_lines(new)}"


def _as_added_lines(text: str) -> str:
    return "".join(
        f"+{line}" if line.endswith("\n") else f"+{line}\n\\ No newline at end of file\n"
        for line in LINES.findall(text)
    )


def _compare(old: str, new: str, name: str) -> list[str] | str:
    """The lines of a unified diff; a sentence if nothing changed or too much to compare."""
    before, after = LINES.findall(old), LINES.findall(new)
    start = _common_prefix(before, after)
    stop = _common_prefix(before[start:][::-1], after[start:][::-1])
    gone, come = len(before) - start - stop, len(after) - start - stop
    if gone == come == 0:
        return "nothing changed"
    if max(gone, come) > COMPARED_LINES:
        return f"{counted(gone, 'line')} from line {start + 1:,} on replaced by {counted(come, 'line')}"
    # Only the part that differs is compared, with the usual three lines around it.
    first, beyond = max(0, start - 3), min(3, stop) - stop
    old_part, new_part = before[first : len(before) + beyond], after[first : len(after) + beyond]
    lines = list(difflib.unified_diff(old_part, new_part, name, name))
    return [_shift_hunk(line, first) if line.startswith("@@") else line for line in lines]


def _common_prefix(left: list[str], right: list[str]) -> int:
    pairs = enumerate(zip(left, right, strict=False))
    return next((index for index, (a, b) in pairs if a != b), min(len(left), len(right)))


def _shift_hunk(hunk: str, lines: int) -> str:
    """The hunk header with line numbers counted from the start of the file, not of the part."""
    marks = []
    for mark in hunk.split()[1:3]:
        number, comma, count = mark[1:].partition(",")
        marks.append(f"{mark[0]}{int(number) + lines}{comma}{count}")
    return f"@@ {' '.join(marks)} @@\n"


def _truncate(lines: list[str]) -> str:
    text = "".join(line if line.endswith("\n") else f"{line}\n" for line in lines[:DIFF_LINES])
    left_out = len(lines) > DIFF_LINES or len(text) > DIFF_CHARS
    return text[:DIFF_CHARS] + ("\n[… the rest of the diff is omitted]" if left_out else "")
