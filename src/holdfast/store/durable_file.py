"""Makes files and their names survive a power cut.

The content of a file is durable after an fsync of the file; its name after an fsync of its directory.
"""

import os
from pathlib import Path


def sync_folder(folder: Path) -> None:
    """Make all names in the directory durable: files that were created, renamed or removed there."""
    try:
        _sync(folder, os.O_DIRECTORY)
    except PermissionError:  # a directory that may be written but not listed cannot be opened
        os.sync()


def sync_file(file: Path) -> None:
    """Make the content of a closed file durable. Not for an open database: closing a descriptor drops its locks."""
    _sync(file, 0)


def sync_written(file: Path) -> None:
    """Make a closed file durable, content and name."""
    sync_file(file)
    sync_folder(file.parent)


def rename(source: Path, target: Path) -> None:
    """Rename a file, replacing the target: after a power cut the target is the old file or the complete new one."""
    sync_file(source)
    source.replace(target)
    sync_folder(target.parent)


def make_folders(folder: Path, *, mode: int = 0o777) -> None:
    """Create the directory and its missing parents, durably."""
    missing = [one for one in (folder, *folder.parents) if not one.exists()]
    for one in reversed(missing):
        one.mkdir(mode=mode, exist_ok=True)
        sync_folder(one.parent)


def make_private_folders(folder: Path) -> None:
    """Create the directory and its missing parents, accessible only by their owner. A crash may undo it."""
    for one in reversed([one for one in (folder, *folder.parents) if not one.exists()]):
        one.mkdir(mode=0o700, exist_ok=True)


def _sync(path: Path, flags: int) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | flags)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
