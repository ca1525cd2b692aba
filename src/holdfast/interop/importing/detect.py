"""Detects by its content which program wrote a file. File names only exclude files that cannot contain sessions."""

import os
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import islice
from pathlib import Path

import msgspec

from holdfast.interop.export import jsonl
from holdfast.interop.importing import jsonlines
from holdfast.interop.importing.facts import ForeignSession
from holdfast.interop.importing.formats import chatgpt, claude_code, codex, hermes
from holdfast.model.errors import Corrupt, HoldfastError, Invalid, NotFound
from holdfast.store.sqlite.foreign_reader import MAGIC, ForeignFile

KNOWN = "an export of Holdfast, a state.db of Hermes, a rollout of Codex, a project file of Claude Code, or a conversations.json of ChatGPT"
SUFFIXES = {".jsonl", ".json", ".db", ".sqlite", ".sqlite3"}
"""The files of a folder that are read. A file that the user names is read whatever its name."""
LINES_READ = 50
"""How many JSON lines are read: some files start with lines that any program could have written."""
OWN_TABLES = {"session", "event", "alias", "idempotency"}

READERS: dict[str, Callable[[Path], Iterator[ForeignSession]]] = {
    "hermes": hermes.read_sessions,
    "codex": codex.read_sessions,
    "claude-code": claude_code.read_sessions,
    "chatgpt": chatgpt.read_sessions,
}


class ImportSource(msgspec.Struct, frozen=True):
    """A file whose format is known."""

    path: Path
    format: str
    size: int

    def sessions(self) -> Iterator[ForeignSession]:
        """The sessions in a file of another program. Raises HoldfastError where the file becomes unreadable."""
        try:
            yield from READERS[self.format](self.path)
        except OSError as e:
            raise Corrupt(f"{self.path} cannot be read: {e.strerror}") from e


def find_sources(path: Path) -> Iterator[ImportSource | tuple[Path, HoldfastError]]:
    """The file, or the files of the folder; a file that is not supported comes with the reason."""
    if not path.exists():
        raise NotFound(f"no file or folder {path}")
    if not path.is_dir():
        yield detect_format(path)
        return
    for file in _files(path):
        try:
            yield detect_format(file)
        except HoldfastError as e:
            yield file, e


def _files(folder: Path) -> list[Path]:
    """Every file that could contain sessions, in a fixed order; links are not followed, to avoid cycles."""
    found: list[Path] = []
    for top, folders, names in os.walk(folder):
        folders.sort()
        found += [Path(top, name) for name in sorted(names) if Path(name).suffix in SUFFIXES]
    return [file for file in found if file.is_file() and not file.is_symlink()]


def detect_format(path: Path) -> ImportSource:
    """The file with its format. Raises Invalid, with the name of the file, for an unknown format."""
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            start = file.read(4096)
        found = _detect(path, start)
    except OSError as e:
        raise Invalid(f"cannot read {path}: {e.strerror}") from e
    return ImportSource(path, found, size)


def _detect(path: Path, start: bytes) -> str:
    if start.startswith(MAGIC):
        return _detect_database(path)
    text = start.removeprefix(b"\xef\xbb\xbf").lstrip()
    if not text:
        raise Invalid(f"{path} is empty; nothing was imported")
    if text[:1] not in (b"{", b"["):
        raise Invalid(f"{path} is not {KNOWN}; nothing was imported")
    found = _detect_lines(path) if text.startswith(b"{") else None
    if found is None and _is_chatgpt(path):
        found = chatgpt.FORMAT
    if found is None:
        raise Invalid(f"{path} is JSON, but not {KNOWN}; nothing was imported")
    return found


def _detect_lines(path: Path) -> str | None:
    for line in islice(jsonlines.read_lines(path), LINES_READ):
        if line.value is None:
            continue
        if line.value.get("format") == jsonl.FORMAT:
            return jsonl.FORMAT
        if codex.recognises(line.value):
            return codex.FORMAT
        if claude_code.recognises(line.value):
            return claude_code.FORMAT
    return None


def _is_chatgpt(path: Path) -> bool:
    """Whether it is an export of ChatGPT. Raises Invalid for a file that is too damaged to tell."""
    try:
        return any(chatgpt.recognises(value) for value, _ in islice(chatgpt.read_values(path), 3))
    except Corrupt as e:
        raise Invalid(f"{path} is truncated or damaged, so its format cannot be detected; nothing was imported") from e


def _detect_database(path: Path) -> str:
    with closing(ForeignFile(path)) as file:
        if hermes.recognises(file):
            return hermes.FORMAT
        tables = {row["name"] for row in file.rows("hermes.list_tables")}
    if tables >= OWN_TABLES:
        raise Invalid(
            f"{path} is a store of Holdfast; use 'holdfast restore', or 'holdfast sessions export' and import the file"
        )
    raise Invalid(f"{path} is a SQLite database, but not one of Hermes; nothing was imported")
