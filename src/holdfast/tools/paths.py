"""From the path a model writes to the file it means."""

import difflib
import os
import stat
from pathlib import Path

from holdfast.model.errors import Invalid


def resolve(text: str, workdir: Path) -> Path:
    """The absolute path. Relative ones start in the working folder; symbolic links are left to the system."""
    if not text.strip():
        raise Invalid("the path is empty")
    try:
        os.fsencode(text)
        path = Path(text).expanduser()
    except (UnicodeEncodeError, RuntimeError) as e:
        raise Invalid(f"{text!r} cannot be a path: {e}") from e
    if "\0" in text:
        raise Invalid(f"{text!r} cannot be a path: it holds a NUL")
    return workdir / path


def shown(path: Path, workdir: Path) -> str:
    """The path as the model should write it next time."""
    return str(path.relative_to(workdir)) if path.is_relative_to(workdir) else str(path)


def existing(path: Path) -> os.stat_result:
    """What is at the path. Raises Invalid, with names that are near, if nothing is."""
    try:
        return path.stat()
    except FileNotFoundError as e:
        raise Invalid(f"{path} does not exist{_near(path)}") from e
    except OSError as e:
        raise Invalid(f"{path} cannot be opened: {e.strerror}") from e


def regular(path: Path) -> os.stat_result:
    """As `existing`, for an ordinary file: reading a pipe or a device might never end."""
    status = existing(path)
    if stat.S_ISDIR(status.st_mode):
        raise Invalid(f"{path} is a folder, not a file")
    if not stat.S_ISREG(status.st_mode):
        raise Invalid(f"{path} is not an ordinary file but a pipe, a socket or a device")
    return status


def folder(path: Path) -> Path:
    if not stat.S_ISDIR(existing(path).st_mode):
        raise Invalid(f"{path} is not a folder")
    return path


def _near(path: Path) -> str:
    try:
        names = os.listdir(path.parent)  # noqa: PTH208 (names are all that is wanted)
    except OSError:
        return f", nor does the folder {path.parent}" if not path.parent.exists() else ""
    near = difflib.get_close_matches(path.name, names, n=3)
    return f"; the folder has {', '.join(near)}" if near else ""
