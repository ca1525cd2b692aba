"""The files of a skill besides its `SKILL.md`: listed, and copied whole or not at all.

A copy has only regular files, without links. It is written next to its place and renamed, so that a crash leaves the
old one or the complete new one. Only where the system cannot exchange two directories, a crash between two renames
leaves both in a directory `.new-…`.
"""

import hashlib
import os
import stat
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from holdfast.instructions.skill_file import FILE
from holdfast.model.errors import Conflict, Invalid, NotSaved
from holdfast.model.sanitize import one_line
from holdfast.store import durable_file
from holdfast.tools.safe_open import descriptor_path, open_for_reading

MAX_TOTAL = 5 * 1024 * 1024
"""Bytes of all files of a skill."""
MAX_FILES = 500
MAX_DEPTH = 8
AT_FDCWD, EXCHANGE = -100, 2
"""Arguments of `renameat2`: https://man7.org/linux/man-pages/man2/rename.2.html"""
LEFT_OUT = (".git", "__pycache__", ".DS_Store")


def list_files(folder: Path) -> list[str]:
    """The relative paths of the files besides `SKILL.md`. Raises Invalid for what a skill may not contain."""
    return [str(path.relative_to(folder)) for path in sorted(_walk(folder)) if path != folder / FILE]


def _walk(folder: Path, depth: int = 1) -> Iterator[Path]:
    """Every regular file. Raises Invalid for a link, a device, or too many files."""
    if depth > MAX_DEPTH:
        raise Invalid(f"{one_line(str(folder))} is more than {MAX_DEPTH} directories deep; move its files up")
    try:
        found = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError as e:
        raise Invalid(f"{one_line(str(folder))} cannot be listed: {e.strerror}") from e
    for count, entry in enumerate(found):
        if entry.name in LEFT_OUT:
            continue
        if count > MAX_FILES:
            raise Invalid(f"{one_line(str(folder))} has more than {MAX_FILES} files, which is the limit of a skill")
        if entry.is_dir(follow_symlinks=False):
            yield from _walk(Path(entry.path), depth + 1)
        elif entry.is_file(follow_symlinks=False):
            yield Path(entry.path)
        else:
            what = "a link" if entry.is_symlink() else "not a regular file"
            raise Invalid(f"{one_line(entry.path)} is {what}; a skill may contain only files and directories")


class SkillCopy:
    """The content of a skill's directory, read once, so that what was checked is what is written."""

    def __init__(self, folder: Path) -> None:
        """Read the files. Raises Invalid if they are too many or too large, or if there are links among them."""
        real = Path(os.path.realpath(folder))
        self._files: dict[str, tuple[bytes, bool]] = {}
        left = MAX_TOTAL
        for path in _walk(real):
            if len(self._files) >= MAX_FILES:
                raise Invalid(f"{one_line(str(folder))} has more than {MAX_FILES} files, which is the limit of a skill")
            data, is_program = _read(path, left)
            left -= len(data)
            self._files[str(path.relative_to(real))] = (data, is_program)
        self.digest = _digest(self._files)

    @property
    def names(self) -> list[str]:
        """The files besides `SKILL.md`."""
        return sorted(name for name in self._files if name != FILE)

    def save(self, target: Path, *, replace: bool = False) -> None:
        """Write a private copy. With `replace` one that exists is replaced; otherwise Conflict is raised."""
        if target.exists() and not replace:
            raise Conflict(f"{one_line(str(target))} exists")
        try:
            durable_file.make_private_folders(target.parent)
            with tempfile.TemporaryDirectory(prefix=".new-", dir=target.parent) as scratch:
                new = Path(scratch, "new")
                self._write(new)
                _put(new, target)
                durable_file.sync_folder(target.parent)
        except OSError as e:
            if not replace and target.exists():
                raise Conflict(f"{one_line(str(target))} exists") from e
            raise NotSaved(f"the skill cannot be written to {one_line(str(target))}: {e.strerror}") from e

    def _write(self, folder: Path) -> None:
        folder.mkdir(mode=0o700)
        for name, (data, is_program) in self._files.items():
            path = folder / name
            durable_file.make_private_folders(path.parent)
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o700 if is_program else 0o600)
            with os.fdopen(descriptor, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(descriptor)


def _put(new: Path, target: Path) -> None:
    """Rename a directory; one that is at the target takes its place."""
    if not target.exists() and not target.is_symlink():
        new.rename(target)
        return
    import ctypes  # only here: it loads slowly

    libc = ctypes.CDLL(None, use_errno=True)
    exchange = getattr(libc, "renameat2", None)
    if exchange is not None and exchange(AT_FDCWD, os.fsencode(new), AT_FDCWD, os.fsencode(target), EXCHANGE) == 0:
        return
    target.rename(new.with_name("old"))
    new.rename(target)


def _read(path: Path, left: int) -> tuple[bytes, bool]:
    """The content of a file, and whether it is a program. Raises Invalid if it is too large or was replaced by a link."""
    try:
        with open_for_reading(path) as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode) or descriptor_path(file.fileno()) != path:
                raise Invalid(f"{one_line(str(path))} was replaced meanwhile; try again")
            data = file.read(left + 1)
    except OSError as e:
        raise Invalid(f"{one_line(str(path))} cannot be read: {e.strerror}") from e
    if len(data) > left:
        raise Invalid(f"its files are larger than {MAX_TOTAL:,} bytes together, which is the limit of a skill")
    return data, bool(status.st_mode & 0o100)


def _digest(files: Mapping[str, tuple[bytes, bool]]) -> str:
    """The hash of names, contents and whether they are programs."""
    digest = hashlib.sha256()
    for name, (data, is_program) in sorted(files.items()):
        content = hashlib.sha256(data).hexdigest()
        digest.update(f"{len(os.fsencode(name))} {int(is_program)} {content} ".encode())
        digest.update(os.fsencode(name))
    return digest.hexdigest()
