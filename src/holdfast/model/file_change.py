"""Changes that tools make to files, and the port through which a rewind reads and restores them."""

import hashlib
from typing import Literal, Protocol

import msgspec

NO_FILE = ""
"""The hash of a file that does not exist."""
CUT_OFF_HASH = "unknown"
"""Stands for the hash of a file after a command that a crash cut off: nobody knows what others have changed since."""
MAX_IMAGE_BYTES = 1024 * 1024
"""The largest file whose content is stored before a change."""
TOO_LARGE = f"it was larger than {MAX_IMAGE_BYTES // 1024**2} MiB, so its content was not stored"


class NewFileChange(msgspec.Struct, frozen=True, kw_only=True):
    """A change that is about to be made."""

    path: str
    """The real path."""
    before: bytes | None
    """The content; None if there is no file, or it is not stored (`problem`)."""
    after_hash: str
    mode: int = 0
    """The permission bits of the file before."""
    folder: str = ""
    """The topmost directory that the change creates."""
    problem: str = ""
    """Why the content before is not stored."""


class RecordedChange(msgspec.Struct, frozen=True):
    """A recorded change of one file; `seq` is the event of the call or of the rewind that made it."""

    number: int
    seq: int
    host: str
    path: str
    before_hash: str
    after_hash: str
    mode: int
    folder: str
    problem: str


class LeftChanges(msgspec.Struct, frozen=True):
    """What a command that a crash cut off, or others since, have changed."""

    call_id: str
    changes: tuple[NewFileChange, ...]


class FileState(msgspec.Struct, frozen=True):
    """A file as it is now."""

    kind: Literal["file", "missing", "other"]
    data: bytes | None = None
    mode: int = 0
    problem: str = ""
    """Why it cannot be read."""

    @property
    def digest(self) -> str | None:
        """The hash of its content; None if that is unknown."""
        if self.kind == "missing":
            return NO_FILE
        return None if self.data is None else hash_content(self.data)


class FilePort(Protocol):
    """The files of this machine."""

    def read(self, path: str) -> FileState:
        """The file as it is now."""

    def diff(self, path: str, now: FileState, target: bytes | None) -> str:
        """What restoring the content would change; `target` None removes the file."""

    def restore(self, path: str, now: FileState, target: bytes | None, mode: int, folder: str) -> None:
        """Restore the file, or remove it and the directories up to `folder` that are then empty.

        Durable when it returns. Raises Invalid if the file is no longer as `now`, and OSError.
        """

    def read_left(self, session_id: str) -> LeftChanges | None:
        """The changes of commands of the session that a crash cut off and nobody has recorded; None for no such command."""

    def forget_left(self, session_id: str) -> None:
        """Forget them once they are recorded."""


def hash_content(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
