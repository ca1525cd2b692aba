"""Files outside the database that only their owner can read, written completely or not at all."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TextIO

from holdfast.model.errors import DiskFull, HoldfastError, Invalid, IoFailed, ReadOnly
from holdfast.store import durable_file

MODE = 0o600


def translate(error: OSError, path: Path | str) -> HoldfastError:
    """Our error for an error of writing a file."""
    reason = error.strerror or str(error)
    match error.errno:
        case errno.ENOSPC | errno.EDQUOT:
            return DiskFull(f"the disk is full: {path} was not written; free some space and try again")
        case errno.EACCES | errno.EPERM | errno.EROFS:
            return ReadOnly(f"cannot write {path}: {reason}")
        case errno.ENOENT | errno.ENOTDIR | errno.EISDIR | errno.ENAMETOOLONG:
            return Invalid(f"cannot write {path}: {reason}")
        case _:
            return IoFailed(f"writing {path} failed: {reason}")


@contextmanager
def new_file(path: Path, *, replace: bool = False) -> Iterator[TextIO]:
    """Write a text file that gets its name only when it is complete and durable; a failure leaves nothing.

    Raises Invalid if the file exists, unless `replace` is set. A device or a pipe is written directly.
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
            durable_file.sync_folder(path.parent)
    except OSError as e:
        raise translate(e, path) from e
    finally:
        if not special:
            with suppress(OSError):
                partial.unlink()


def refuse_existing(path: Path, *, replace: bool) -> None:
    try:
        if path.is_dir():
            raise Invalid(f"{path} is a directory; give the path of a file")
        if path.is_file() and not replace:
            raise Invalid(f"{path} already exists and was left unchanged; --force replaces it")
    except OSError as e:
        raise translate(e, path) from e


def _open(path: Path, *, special: bool) -> int:
    """Open the file, readable only by its owner from the start."""
    return os.open(path, os.O_WRONLY | (0 if special else os.O_CREAT | os.O_TRUNC), MODE)
