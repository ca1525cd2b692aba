"""Resolves the paths that a model writes, with error messages that help it to correct them."""

import difflib
import os
import secrets
import stat
from pathlib import Path

from holdfast.model.errors import Invalid

TEMPORARY_NAMES = ".holdfast-*.tmp"
"""The pattern of the names of new files that have not replaced the old ones yet."""


def resolve(text: str, workdir: Path) -> Path:
    """The absolute path; a relative one starts in the working folder. Symbolic links are not resolved."""
    check_path_text(text)
    try:
        return workdir / Path(text).expanduser()
    except RuntimeError as e:
        raise Invalid(f"{text!r} is not a valid path: {e}") from e


def check_path_text(text: str) -> None:
    """Raises Invalid for a text that no path can be."""
    if not text.strip():
        raise Invalid("the path is empty")
    try:
        os.fsencode(text)
    except UnicodeEncodeError as e:
        raise Invalid(f"{text!r} is not a valid path: {e}") from e
    if "\0" in text:
        raise Invalid(f"{text!r} is not a valid path: it contains a NUL character")


def display_path(path: Path, workdir: Path) -> str:
    """The path as shown to the model: relative to the working folder if it is inside."""
    return str(path.relative_to(workdir)) if path.is_relative_to(workdir) else str(path)


def stat_path(path: Path) -> os.stat_result:
    """The status of the path. Raises Invalid, with similar names, if it does not exist."""
    try:
        return path.stat()
    except FileNotFoundError as e:
        raise Invalid(f"{path} does not exist{_suggest_names(path)}") from e
    except OSError as e:
        raise Invalid(f"{path} cannot be opened: {e.strerror}") from e


def stat_file(path: Path) -> os.stat_result:
    """As `stat_path`, for a regular file only: reading a pipe or a device might never end."""
    status = stat_path(path)
    if stat.S_ISDIR(status.st_mode):
        raise Invalid(f"{path} is a folder, not a file")
    if not stat.S_ISREG(status.st_mode):
        raise Invalid(f"{path} is a pipe, a socket or a device, not a regular file")
    return status


def check_folder(path: Path) -> Path:
    if not stat.S_ISDIR(stat_path(path).st_mode):
        raise Invalid(f"{path} is not a folder")
    return path


def real_path(path: Path | str) -> Path:
    """The path with symbolic links resolved; links in /proc that may not be read are left as they are."""
    try:
        return Path(os.path.realpath(path))
    except OSError:
        return Path(os.path.normpath(path))


def make_temporary_name() -> str:
    return TEMPORARY_NAMES.replace("*", secrets.token_hex(6))


def _suggest_names(path: Path) -> str:
    try:
        names = os.listdir(path.parent)  # noqa: PTH208 - only names are needed
    except OSError:
        return f", and neither does the folder {path.parent}" if not path.parent.exists() else ""
    similar = difflib.get_close_matches(path.name, names, n=3)
    return f"; similar names in the folder: {', '.join(similar)}" if similar else ""
