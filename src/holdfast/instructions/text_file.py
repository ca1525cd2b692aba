"""Reads small text files that a user or a project wrote for the model. A file that cannot be used is refused with a reason."""

import errno
import hashlib
import os
import stat
from pathlib import Path

import msgspec

from holdfast.tools.safe_open import descriptor_path, open_for_reading

MAX_BYTES = 1024 * 1024
"""Larger files are not read at all."""


class TextFile(msgspec.Struct, frozen=True, kw_only=True):
    """The content of a file, or why it is not used."""

    path: Path
    text: str = ""
    sha256: str = ""
    size: int = 0
    refused: str = ""
    """Empty if the file can be used."""
    is_missing: bool = False


def read_text(path: Path, within: Path | None, *, max_bytes: int = MAX_BYTES, suffix: str = ".md") -> TextFile:
    """Read a file. With `within`, a link must lead to a file of that suffix in that directory; ownership is checked, too."""
    try:
        with open_for_reading(path) as file:
            found = os.fstat(file.fileno())
            refused = _why_refused(path, descriptor_path(file.fileno()), found, within, max_bytes, suffix)
            if refused:
                return TextFile(path=path, size=found.st_size, refused=refused)
            data = file.read(max_bytes + 1)
    except OSError as e:
        is_link = os.path.islink(path)  # noqa: PTH114 - Path.is_symlink raises for some paths
        is_missing = e.errno in (errno.ENOENT, errno.ENOTDIR) and not is_link
        refused = "it is a link to nothing" if is_link and e.errno == errno.ENOENT else f"{e.strerror}"
        return TextFile(path=path, refused=refused, is_missing=is_missing)
    return _decode(path, data, max_bytes)


def _why_refused(
    path: Path, real: Path, found: os.stat_result, within: Path | None, max_bytes: int, suffix: str
) -> str:
    if not stat.S_ISREG(found.st_mode):
        return "it is not a regular file"
    if found.st_size > max_bytes:
        return f"it has {found.st_size:,} bytes; at most {max_bytes:,} are read"
    if within is None:
        return ""
    if not real.is_relative_to(os.path.realpath(within)):
        return "it is a link to a file outside the project"
    if real.name != path.name and real.suffix.lower() != suffix:
        return f"it is a link to a file that is not a {suffix} file"
    if found.st_uid not in {0, os.geteuid(), within.stat().st_uid}:
        return "it belongs to another user"
    return ""


def _decode(path: Path, data: bytes, max_bytes: int) -> TextFile:
    if len(data) > max_bytes:
        return TextFile(path=path, size=len(data), refused=f"it has more than {max_bytes:,} bytes")
    digest = hashlib.sha256(data).hexdigest()
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return TextFile(path=path, sha256=digest, size=len(data), refused="it is not UTF-8 text")
    if "\0" in text:
        return TextFile(path=path, sha256=digest, size=len(data), refused="it is a binary file")
    return TextFile(path=path, text=text, sha256=digest, size=len(data))


def cut_text(text: str, limit: int) -> str:
    """The first whole lines that have at most `limit` characters; of a longer line its beginning."""
    if len(text) <= limit:
        return text
    end = text.rfind("\n", 0, limit) + 1
    return text[: end or limit]
