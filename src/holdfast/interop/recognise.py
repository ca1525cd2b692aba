"""Tells by its content which program a file is from. Names of files are only used to leave out what cannot be one."""

import os
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import islice
from pathlib import Path

import msgspec

from holdfast.interop import chatgpt, claude_code, codex, export, hermes, lines
from holdfast.interop.foreign import Foreign
from holdfast.model.errors import Corrupt, HoldfastError, Invalid, NotFound
from holdfast.store.foreign import MAGIC, ForeignFile

KNOWN = "an export of Holdfast, a state.db of Hermes, a rollout of Codex, a project file of Claude Code, or a conversations.json of ChatGPT"
ENDINGS = {".jsonl", ".json", ".db", ".sqlite", ".sqlite3"}
"""What is looked at in a folder. A file that is named itself is looked at whatever its name."""
LINES_LOOKED_AT = 50
"""How far into a file of JSON lines: some begin with lines that any program could have written."""
OURS = {"session", "event", "alias", "idempotency"}

READERS: dict[str, Callable[[Path], Iterator[Foreign]]] = {
    "hermes": hermes.sessions,
    "codex": codex.sessions,
    "claude-code": claude_code.sessions,
    "chatgpt": chatgpt.sessions,
}


class Source(msgspec.Struct, frozen=True):
    """A file whose format is known."""

    path: Path
    format: str
    size: int

    def sessions(self) -> Iterator[Foreign]:
        """The sessions in it, if it is another program's. Raises HoldfastError where it cannot be read any further."""
        try:
            yield from READERS[self.format](self.path)
        except OSError as e:
            raise Corrupt(f"{self.path} cannot be read: {e.strerror}") from e


def sources(path: Path) -> Iterator[Source | tuple[Path, HoldfastError]]:
    """The file, or what can be understood of the files in the folder; those that cannot come with the reason."""
    if not path.exists():
        raise NotFound(f"there is no file or folder {path}")
    if not path.is_dir():
        yield recognise(path)
        return
    for file in _files(path):
        try:
            yield recognise(file)
        except HoldfastError as e:
            yield file, e


def _files(folder: Path) -> list[Path]:
    """Every file that could hold sessions, in a fixed order; links are not followed, so that there is an end."""
    found: list[Path] = []
    for top, folders, names in os.walk(folder):
        folders.sort()
        found += [Path(top, name) for name in sorted(names) if Path(name).suffix in ENDINGS]
    return [file for file in found if file.is_file() and not file.is_symlink()]


def recognise(path: Path) -> Source:
    """What a file is. Raises Invalid for what is nothing we know, and names the file."""
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            start = file.read(4096)
        found = _format(path, start)
    except OSError as e:
        raise Invalid(f"cannot read {path}: {e.strerror}") from e
    return Source(path, found, size)


def _format(path: Path, start: bytes) -> str:
    if start.startswith(MAGIC):
        return _database(path)
    text = start.removeprefix(b"\xef\xbb\xbf").lstrip()
    if not text:
        raise Invalid(f"{path} is empty; nothing was imported")
    if text[:1] not in (b"{", b"["):
        raise Invalid(f"{path} is not {KNOWN}; nothing was imported")
    found = _of_lines(path) if text.startswith(b"{") else None
    if found is None and _is_chatgpt(path):
        found = chatgpt.FORMAT
    if found is None:
        raise Invalid(f"{path} is JSON, but not {KNOWN}; nothing was imported")
    return found


def _of_lines(path: Path) -> str | None:
    for line in islice(lines.read(path), LINES_LOOKED_AT):
        if line.value is None:
            continue
        if line.value.get("format") == export.FORMAT:
            return export.FORMAT
        if codex.recognises(line.value):
            return codex.FORMAT
        if claude_code.recognises(line.value):
            return claude_code.FORMAT
    return None


def _is_chatgpt(path: Path) -> bool:
    """Raises Invalid for what ends or breaks before anybody could tell what it is, as half a download does."""
    try:
        return any(chatgpt.recognises(value) for value, _ in islice(chatgpt.objects(path), 3))
    except Corrupt as e:
        raise Invalid(f"{path} is cut off or damaged before it can be told what it is; nothing was imported") from e


def _database(path: Path) -> str:
    with closing(ForeignFile(path)) as file:
        if hermes.recognises(file):
            return hermes.FORMAT
        tables = {row["name"] for row in file.rows("hermes.tables")}
    if tables >= OURS:
        raise Invalid(f"{path} is a store of Holdfast: 'holdfast restore' or 'sessions export' read those")
    raise Invalid(f"{path} is a SQLite database, but not one of Hermes; nothing was imported")
