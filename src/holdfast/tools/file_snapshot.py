"""The content of a file before a change."""

import os
from pathlib import Path

import msgspec

from holdfast.model.errors import Invalid
from holdfast.tools.paths import stat_file, stat_path
from holdfast.tools.safe_open import open_verified

MAX_READ_BYTES = 50 * 1024 * 1024


class FileSnapshot(msgspec.Struct, frozen=True):
    """A file as it was, or that there was none."""

    path: Path
    size: int | None = None
    """None if there was no file."""
    data: bytes | None = None
    status: os.stat_result | None = None
    """Its status, if it is on this machine."""
    problem: str = ""
    """Why it has no text."""

    @classmethod
    def too_large(cls, path: Path, size: int, status: os.stat_result | None = None) -> "FileSnapshot":
        problem = f"{path} has {size:,} bytes, which is too large to edit; use a program in the terminal"
        return cls(path, size, status=status, problem=problem)

    def text(self) -> str:
        """Its text. Bytes that are not UTF-8 are unchanged when written back. Raises Invalid if it has none."""
        if self.data is None:
            raise Invalid(self.problem)
        if b"\0" in self.data:
            raise Invalid(f"{self.path} is a binary file")
        return self.data.decode("utf-8", "surrogateescape")


def take_snapshot(path: Path) -> FileSnapshot:
    """The file at a real path on this machine. Raises Invalid if it is no regular file, and OSError."""
    if not os.path.lexists(path):
        try:
            stat_path(path)
        except Invalid as e:
            return FileSnapshot(path, problem=str(e))
    status = stat_file(path)
    if status.st_size > MAX_READ_BYTES:
        return FileSnapshot.too_large(path, status.st_size, status)
    with open_verified(path) as file:
        return FileSnapshot(path, status.st_size, file.read(), status)


def encode_text(text: str) -> bytes:
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError as e:
        raise Invalid(f"the text cannot be written: {e}") from e
