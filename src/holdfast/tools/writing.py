"""Writing files so that a crash leaves the old text or the new, and telling what changed."""

import asyncio
import contextlib
import difflib
import os
import re
import secrets
import stat
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import TypeVar
from weakref import WeakValueDictionary

from holdfast.model.counted import counted
from holdfast.model.errors import Invalid
from holdfast.model.tool import Output, Scene
from holdfast.tools.paths import regular, resolve, shown
from holdfast.tools.sensitive import check_target, why_guarded

DIFF_LINES = 200
DIFF_CHARS = 12_000
COMPARED_LINES = 2_000
"""Longer changes are counted instead of compared: the comparison takes the square of the lines."""

LINES = re.compile(r"[^\n]*\n|[^\n]+")

MAX_READ_BYTES = 50 * 1024 * 1024

T = TypeVar("T")


class Writing:
    """One writer at a time per file, so that calls which run side by side do not undo each other."""

    def __init__(self, *, home: Path | None = None) -> None:
        self._home = home
        self._locks: WeakValueDictionary[Path, asyncio.Lock] = WeakValueDictionary()

    @contextlib.asynccontextmanager
    async def alone(self, path: Path) -> AsyncIterator[Path]:
        """Hold the file that the path leads to, links followed."""
        real = Path(await asyncio.to_thread(os.path.realpath, path))
        async with self._locks.setdefault(real, asyncio.Lock()):
            yield real

    def risk(self, path: str) -> str | None:
        """Why changing this file needs a person's word."""
        return why_guarded(path, self._home)

    async def change(self, named: str, scene: Scene, work: Callable[[Path, str], str], *, deed: str) -> Output:
        """What `work` says of the file it changed, alone and to the end, given its real path and its name; or why not.

        A path that nobody was asked about may not lead to a file about which somebody would have been.
        """
        try:
            path = resolve(named, scene.workdir)
            async with self.alone(path) as real:
                if not self.risk(named):
                    check_target(real, why_guarded, self._home)
                return await to_the_end(lambda: Output.say(work(real, shown(path, scene.workdir))))
        except Invalid as e:
            return Output.say(str(e), ok=False)
        except OSError as e:
            return Output.say(f"{named} could not be {deed}: {e.strerror}", ok=False)


async def to_the_end(work: Callable[[], T]) -> T:
    """Run it in a thread; a cancellation passes through only when it is finished."""
    task = asyncio.ensure_future(asyncio.to_thread(work))
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait({task})
        if not task.cancelled():
            task.exception()
        raise


def read(path: Path) -> tuple[str, os.stat_result]:
    """The whole text, and the state it was in. Bytes that are not UTF-8 survive being written back."""
    status = regular(path)
    if status.st_size > MAX_READ_BYTES:
        raise Invalid(f"{path} has {status.st_size:,} bytes, too many to edit; use a program in the terminal")
    data = path.read_bytes()
    if b"\0" in data:
        raise Invalid(f"{path} is a binary file")
    return data.decode("utf-8", "surrogateescape"), status


def replace(path: Path, text: str, before: os.stat_result | None) -> None:
    """Put the text in the place of the file as it was `before`, or of no file; mode and owner stay.

    On disk when it returns. Raises Invalid if the file has changed since, and OSError.
    """
    try:
        data = text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError as e:
        raise Invalid(f"the text cannot be written: {e}") from e
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".holdfast-{secrets.token_hex(6)}.tmp")
    mode = 0o666 if before is None else stat.S_IMODE(before.st_mode)
    file = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    try:
        with os.fdopen(file, "wb") as stream:
            if before is not None:
                _keep_owner(file, before)
                os.fchmod(file, mode)
            stream.write(data)
            stream.flush()
            os.fsync(file)
        _check_unchanged(path, before)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    _sync_folder(path.parent)


def _keep_owner(file: int, before: os.stat_result) -> None:
    if os.geteuid() == 0:
        os.fchown(file, before.st_uid, before.st_gid)


def _check_unchanged(path: Path, before: os.stat_result | None) -> None:
    try:
        now = path.stat()
    except FileNotFoundError:
        return
    signature = (now.st_ino, now.st_size, now.st_mtime_ns)
    if before is None or signature != (before.st_ino, before.st_size, before.st_mtime_ns):
        raise Invalid(f"{path} was changed by somebody else meanwhile; read it again")


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def diff(old: str, new: str, name: str) -> str:
    """A unified diff, cut to what is worth showing."""
    before, after = LINES.findall(old), LINES.findall(new)
    start = _common(before, after)
    stop = _common(before[start:][::-1], after[start:][::-1])
    gone, come = len(before) - start - stop, len(after) - start - stop
    if gone == come == 0:
        return "nothing changed"
    if max(gone, come) > COMPARED_LINES:
        return f"{counted(gone, 'line')} from line {start + 1:,} on gave way to {counted(come, 'line')}"
    # Only the part that differs is compared, with the usual three lines around it.
    first, beyond = max(0, start - 3), min(3, stop) - stop
    old_part, new_part = before[first : len(before) + beyond], after[first : len(after) + beyond]
    lines = list(difflib.unified_diff(old_part, new_part, name, name))
    return _cut([_shifted(line, first) if line.startswith("@@") else line for line in lines])


def _common(left: list[str], right: list[str]) -> int:
    pairs = enumerate(zip(left, right, strict=False))
    return next((place for place, (a, b) in pairs if a != b), min(len(left), len(right)))


def _shifted(hunk: str, lines: int) -> str:
    """The hunk's header, counted from the start of the file instead of the part."""
    marks = []
    for mark in hunk.split()[1:3]:
        number, comma, count = mark[1:].partition(",")
        marks.append(f"{mark[0]}{int(number) + lines}{comma}{count}")
    return f"@@ {' '.join(marks)} @@\n"


def _cut(lines: list[str]) -> str:
    text = "".join(line if line.endswith("\n") else f"{line}\n" for line in lines[:DIFF_LINES])
    left_out = len(lines) > DIFF_LINES or len(text) > DIFF_CHARS
    return text[:DIFF_CHARS] + ("\n[… the rest of the diff is left out]" if left_out else "")
