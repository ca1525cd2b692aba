"""Reads a directory that the user attaches: the text of its files, or only their names if that is too much."""

import os
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from holdfast.cli.chat.attachments.file_content import MAX_TEXT_BYTES, FileText, check_readable, decode, read_bytes
from holdfast.model.attachment import header
from holdfast.model.errors import Invalid
from holdfast.model.message import Content, Text
from holdfast.model.sanitize import one_line
from holdfast.model.text import counted
from holdfast.tools.search_files import SKIPPED

MAX_FILES = 200
"""Files whose text is attached."""
MAX_NAMES = 1_000
MAX_COUNTED = 10_000
"""Where the count of the files stops, so that a huge directory costs little."""


def read_folder(path: Path, name: str, home: Path) -> tuple[Content, ...]:
    """The part for a directory. Raises Invalid if it belongs to Holdfast itself, or cannot be read."""
    check_readable(path, name, home)
    try:
        os.scandir(path).close()
    except OSError as e:
        raise Invalid(f"{name} cannot be read: {e.strerror}") from e
    found = list(islice(_walk(path), MAX_COUNTED + 1))
    pieces = _read_all(path, found, home) if len(found) <= MAX_FILES else None
    if pieces is None:
        return (Text(_names(path, name, found)),)
    facts = f"{counted(len(found), 'file')}, {counted(sum(map(len, pieces)), 'character')}"
    return (Text("\n".join([header("directory", name, facts), *pieces])),)


def _walk(directory: Path) -> Iterator[Path]:
    """The files below a directory, those of each directory in order; links to directories are not followed."""
    for place, folders, files in os.walk(directory):
        folders[:] = sorted(folder for folder in folders if folder not in SKIPPED)
        for file in sorted(files):
            yield Path(place, file)


def _read_all(directory: Path, files: list[Path], home: Path) -> list[str] | None:
    """Each file under a line with its name; None if they are too large together."""
    pieces, room = [], MAX_TEXT_BYTES
    for path in files:
        name = one_line(str(path.relative_to(directory)))
        try:
            check_readable(path, name, home)
            content = read_bytes(path, name, limit=MAX_TEXT_BYTES)
            found = decode(content, name)
        except Invalid as e:
            pieces.append(f"[not attached: {e}]")
            continue
        room -= found.size
        if room < 0:
            return None
        pieces.append(_piece(name, found))
    return pieces


def _piece(name: str, found: FileText) -> str:
    return f"[file {name}: {found.facts}]\n{found.text}"


def _names(directory: Path, name: str, files: list[Path]) -> str:
    total = f"more than {MAX_COUNTED:,}" if len(files) > MAX_COUNTED else f"{len(files):,}"
    shown = files[:MAX_NAMES]
    facts = f"names of {len(shown):,} of {total} files; their content is too large to attach"
    return "\n".join(
        [header("directory", name, facts), *(one_line(str(path.relative_to(directory))) for path in shown)]
    )
