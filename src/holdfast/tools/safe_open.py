"""Opens files so that a path that was checked cannot resolve to another file when it is used.

A concurrent program can replace a file or directory by a link at any moment. An open descriptor does not change, so
the check reads the path of the open file, or compares it with the path that was checked.
"""

import contextlib
import fcntl
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from holdfast.model.errors import Invalid

DIRECTORY = os.O_DIRECTORY | os.O_CLOEXEC | getattr(os, "O_PATH", os.O_RDONLY)
"""O_PATH also opens a directory that may be written but not listed."""


def descriptor_path(descriptor: int) -> Path:
    """The real path of an open file or directory."""
    if sys.platform == "darwin":
        return Path(os.fsdecode(fcntl.fcntl(descriptor, fcntl.F_GETPATH, bytes(1024)).rstrip(b"\0")))
    return Path(os.readlink(f"/proc/self/fd/{descriptor}"))  # noqa: PTH115


def open_for_reading(path: Path) -> BinaryIO:
    """Open a file without blocking, in case it has become a pipe."""
    return os.fdopen(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK), "rb")


def open_verified(real: Path) -> BinaryIO:
    """Open a file by its real path. Raises Invalid if the path now resolves to another file."""
    file = open_for_reading(real)
    try:
        _check_path(file.fileno(), real)
    except BaseException:
        file.close()
        raise
    return file


@contextlib.contextmanager
def open_directory_verified(real: Path) -> Iterator[int]:
    """Open a directory by its real path, to create and rename files in. Raises Invalid if the path now resolves elsewhere."""
    descriptor = os.open(real, DIRECTORY)
    try:
        _check_path(descriptor, real)
        yield descriptor
    finally:
        os.close(descriptor)


def _check_path(descriptor: int, real: Path) -> None:
    if descriptor_path(descriptor) != real:
        raise Invalid(f"{real} was replaced meanwhile; try again")
