"""Turns a typed message into the parts that are sent: the text, and what it mentions with `@`."""

from collections.abc import Sequence
from pathlib import Path

import msgspec

from holdfast.cli.chat.attachments.file_content import read_attachment
from holdfast.cli.chat.attachments.folder_content import read_folder
from holdfast.cli.chat.attachments.mentions import find_mentions, looks_like_path
from holdfast.model.errors import Invalid
from holdfast.model.message import Content, Text

MAX_ATTACHMENTS = 20


class ComposedMessage(msgspec.Struct, frozen=True):
    parts: tuple[Content, ...]
    notes: list[str]
    """What the user should know: names that look like files and are not attached."""

    @property
    def attached(self) -> tuple[Content, ...]:
        """The parts after the text."""
        return self.parts[1:]


def compose(typed: str, text: str, workdir: Path, home: Path) -> ComposedMessage:
    """The parts of a message: `text`, and the files and directories that `typed` mentions.

    `typed` is the text without the content of large pastes: what they contain is not a mention. Raises Invalid if a file
    cannot be attached; then nothing should be sent.
    """
    paths, missing = _resolve(typed, workdir)
    if len(paths) > MAX_ATTACHMENTS:
        raise Invalid(f"{len(paths)} files are too many for one message; the limit is {MAX_ATTACHMENTS}")
    attached = [part for name, path in paths.items() for part in _read(path, name, home)]
    return ComposedMessage((Text(text), *attached), [f"! @{name}: no such file; sent as text" for name in missing])


def _resolve(typed: str, workdir: Path) -> tuple[dict[str, Path], Sequence[str]]:
    """The existing paths by name, and the names that look like paths and do not exist."""
    paths: dict[str, Path] = {}
    missing: list[str] = []
    for names in find_mentions(typed):
        found = next(((name, path) for name in names if (path := _existing(name, workdir)) is not None), None)
        if found is not None:
            paths[found[0]] = found[1]
        elif looks_like_path(names[-1]):
            missing.append(names[-1])
    return paths, missing


def _existing(name: str, workdir: Path) -> Path | None:
    try:
        path = workdir / Path(name).expanduser()
        return path if path.exists() else None
    except (OSError, ValueError, RuntimeError):  # a name too long, a NUL, a user without a home directory
        return None


def _read(path: Path, name: str, home: Path) -> tuple[Content, ...]:
    return read_folder(path, name, home) if path.is_dir() else read_attachment(path, name, home)
