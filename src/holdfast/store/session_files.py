"""Opens the files of a session: results of its tools and attachments, in `<home>/files/<session>`."""

import os
import re
import stat
from pathlib import Path
from typing import BinaryIO

from holdfast.model.errors import NotFound

SAFE_NAME = re.compile(r"(?!\.)[\w.\- ]{1,200}")
"""Without directories and hidden files: those are unfinished."""


def open_file(home: Path, session_id: str, name: str) -> BinaryIO:
    """Open a file to read. Raises NotFound, also for a link, which could lead out of the directory."""
    if not SAFE_NAME.fullmatch(name):
        raise NotFound(f"session {session_id} has no file {name!a}")
    path = home / "files" / session_id / name
    try:
        file = os.fdopen(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW), "rb")
    except OSError as e:
        raise NotFound(f"session {session_id} has no file {name!a}") from e
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise NotFound(f"session {session_id} has no file {name!a}")
    return file
