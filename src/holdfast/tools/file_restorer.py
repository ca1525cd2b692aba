"""Reads files of this machine and restores earlier contents. Holdfast's own home is refused."""

import contextlib
import os
import stat
from pathlib import Path

from holdfast.model.errors import Invalid
from holdfast.model.file_change import FileState, LeftChanges
from holdfast.model.sanitize import exact_name
from holdfast.store import durable_file
from holdfast.tools.atomic_replace import full_diff
from holdfast.tools.command_snapshots import CommandSnapshots
from holdfast.tools.file_snapshot import MAX_READ_BYTES
from holdfast.tools.home_guard import is_protected
from holdfast.tools.paths import make_temporary_name, real_path
from holdfast.tools.safe_open import open_directory_verified, open_verified
from holdfast.tools.sensitive_paths import WORK

NEW_FILE_MODE = 0o644


class FileRestorer:
    """Implements `model.file_change.FilePort`."""

    def __init__(self, home: Path, snapshots: CommandSnapshots | None = None) -> None:
        self._home = home
        self._snapshots = snapshots

    def read(self, path: str) -> FileState:
        real = Path(path)
        try:
            found = real.lstat()
        except (FileNotFoundError, NotADirectoryError):
            return FileState("missing")
        except OSError as e:
            return FileState("other", problem=f"it cannot be read: {e.strerror}")
        if not stat.S_ISREG(found.st_mode):
            return FileState("other", problem="it is no longer a regular file")
        if found.st_size > MAX_READ_BYTES:
            return FileState("other", problem="it is too large now")
        try:
            with open_verified(real) as file:
                return FileState("file", file.read(), stat.S_IMODE(found.st_mode))
        except Invalid:
            return FileState("other", problem="a directory of its path was replaced by a link")
        except OSError as e:
            return FileState("other", problem=f"it cannot be read: {e.strerror}")

    def diff(self, path: str, now: FileState, target: bytes | None) -> str:
        old, new, name = _text(now.data or b""), _text(target or b""), exact_name(path)
        if now.kind == "missing":
            return f"create {name}\n" + (_hunks("", new, path) if new is not None else "(binary)")
        if target is None:
            return f"remove {name}\n" + (_hunks(old, "", path) if old else "")
        if old is None or new is None:
            return f"restore {name}: binary, {len(now.data or b''):,} → {len(target):,} bytes"
        return f"restore {name}\n{_hunks(old, new, path)}"

    def restore(self, path: str, now: FileState, target: bytes | None, mode: int, folder: str) -> None:
        real = Path(path)
        if is_protected(real, self._home, (real_path(self._home) / WORK,)):
            raise Invalid(f"{path} is in Holdfast's own directory")
        current = self.read(path)
        if (current.kind, current.data) != (now.kind, now.data) or current.kind == "other":
            raise Invalid(f"{path} was changed meanwhile; nothing was written to it")
        if target is None:
            self._remove(real, folder)
            return
        durable_file.make_folders(real.parent)
        with open_directory_verified(real.parent) as directory:
            temporary = make_temporary_name()
            try:
                _write(temporary, directory, target, mode or now.mode or NEW_FILE_MODE)
                os.replace(temporary, real.name, src_dir_fd=directory, dst_dir_fd=directory)
            except BaseException:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(temporary, dir_fd=directory)
                raise
        durable_file.sync_folder(real.parent)

    def read_left(self, session_id: str) -> LeftChanges | None:
        return None if self._snapshots is None else self._snapshots.read_left(session_id)

    def forget_left(self, session_id: str) -> None:
        if self._snapshots is not None:
            self._snapshots.forget_left(session_id)

    def _remove(self, real: Path, folder: str) -> None:
        """Remove the file, and the directories that were created for it, if nothing else is in them."""
        with contextlib.suppress(FileNotFoundError), open_directory_verified(real.parent) as directory:
            os.unlink(real.name, dir_fd=directory)
        last = real.parent
        while folder and last.is_relative_to(folder):
            try:
                last.rmdir()
            except OSError:  # not empty, or already gone
                break
            last = last.parent
        durable_file.sync_folder(last)


def _hunks(old: str, new: str, path: str) -> str:
    """The diff without its header: the line before it names the file."""
    text = full_diff(old, new, path)
    return text[text.index("@@") :] if text.startswith("--- ") else text


def _text(data: bytes) -> str | None:
    """The text of a file; None for a binary one."""
    return None if b"\0" in data else data.decode("utf-8", "surrogateescape")


def _write(name: str, directory: int, data: bytes, mode: int) -> None:
    file = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=directory)
    with os.fdopen(file, "wb") as stream:
        os.fchmod(file, mode)
        stream.write(data)
        stream.flush()
        os.fsync(file)
