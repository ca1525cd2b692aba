"""Files outside the database that only their owner may read, written whole or not at all."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TextIO

from holdfast.model.errors import DiskFull, HoldfastError, Invalid, IoFailed, ReadOnly

MODE = 0o600


def translate(error: OSError, path: Path | str) -> HoldfastError:
    """The system's refusal to write a file, as our error."""
    reason = error.strerror or str(error)
    match error.errno:
        case errno.ENOSPC | errno.EDQUOT:
            return DiskFull(f"the disk is full: {path} was not written; make room and try again")
        case errno.EACCES | errno.EPERM | errno.EROFS:
            return ReadOnly(f"cannot write {path}: {reason}")
        case errno.ENOENT | errno.ENOTDIR | errno.EISDIR | errno.ENAMETOOLONG:
            return Invalid(f"cannot write {path}: {reason}")
        case _:
            return IoFailed(f"writing {path} failed: {reason}")


@contextmanager
def new_file(path: Path, *, replace: bool = False) -> Iterator[TextIO]:
    """A text file that appears under its name when it is complete and on the disk; a failure leaves nothing there.

    Raises Invalid if there is one already, unless it may be replaced. A device or a pipe is written to directly.
    """
    refuse_existing(path, replace=replace)
    special = path.exists() and not path.is_file()
    partial = path if special else path.with_name(f"{path.name}.{os.getpid()}.partial")
    try:
        with os.fdopen(_open(partial, special=special), "w", encoding="utf-8", errors="backslashreplace") as stream:
            yield stream
            stream.flush()
            if not special:
                os.fsync(stream.fileno())
        if not special:
            partial.replace(path)
            sync_folder(path.parent)
    except OSError as e:
        raise translate(e, path) from e
    finally:
        if not special:
            with suppress(OSError):
                partial.unlink()


def refuse_existing(path: Path, *, replace: bool) -> None:
    try:
        if path.is_dir():
            raise Invalid(f"{path} is a folder; name a file")
        if path.is_file() and not replace:
            raise Invalid(f"{path} exists already and was left as it is; --force replaces it")
    except OSError as e:
        raise translate(e, path) from e


def sync_folder(folder: Path) -> None:
    """Make a rename in the folder survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _open(path: Path, *, special: bool) -> int:
    """Private from its first byte on."""
    return os.open(path, os.O_WRONLY | (0 if special else os.O_CREAT | os.O_TRUNC), MODE)
