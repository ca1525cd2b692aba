"""Searches files where ripgrep is not installed. Runs as a separate process, because a regex match cannot be interrupted.

Prints `path NUL line colon text` for each match, as ripgrep does with `--null`. Imports nothing from Holdfast.
"""

import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

SNIFF_BYTES = 8_192
MAX_LINE_BYTES = 1_000_000
"""The rest of a longer line is searched as if it were the next line."""


def glob_pattern(glob: str) -> re.Pattern[str]:
    """A glob with ripgrep's meaning: without a slash it matches file names in any folder, with a slash whole paths."""
    parts = []
    for piece in re.findall(r"\*\*/|\*\*|\*|\?|\[!?\]?[^\]]*\]|\{[^{}]*\}|.", glob, re.DOTALL):
        if piece.startswith("{") and len(piece) > 1:
            inner = "|".join(
                glob_pattern(choice).pattern.removeprefix("(?s:").removesuffix(")") for choice in piece[1:-1].split(",")
            )
            parts.append(f"(?:{inner})")
        elif piece.startswith("[") and len(piece) > 1:
            parts.append(piece.replace("[!", "[^", 1))
        else:
            parts.append({"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}.get(piece) or re.escape(piece))
    return re.compile(f"(?s:{''.join(parts)})")


class FileWalk:
    """The files to search, and whether some of them could not be read."""

    def __init__(self, root: Path, glob: str, skipped: frozenset[str]) -> None:
        self._root = root
        self._is_whole_path = "/" in glob
        self._is_negated = glob.startswith("!")
        self._pattern = glob_pattern(glob.removeprefix("!").lstrip("/") or "*")
        self._skipped = skipped
        self.failed = False

    def note(self, _: OSError) -> None:
        self.failed = True

    def files(self) -> Iterator[Path]:
        """In the order of their names; links are skipped."""
        return iter((self._root,)) if self._root.is_file() else self._below(self._root)

    def _below(self, folder: Path) -> Iterator[Path]:
        try:
            with os.scandir(folder) as found:
                entries = sorted(found, key=lambda entry: entry.name)
        except OSError as e:
            self.note(e)
            return
        for entry in entries:
            path = Path(entry.path)
            if entry.is_dir(follow_symlinks=False):
                yield from self._below(path) if entry.name not in self._skipped else ()
            elif entry.is_file(follow_symlinks=False) and self._is_wanted(path):
                yield path

    def _is_wanted(self, path: Path) -> bool:
        subject = path.relative_to(self._root).as_posix() if self._is_whole_path else path.name
        return (self._pattern.fullmatch(subject) is not None) != self._is_negated


def matches(path: Path, pattern: re.Pattern[str]) -> Iterator[tuple[int, str]]:
    with path.open("rb") as file:
        if b"\0" in file.read(SNIFF_BYTES):
            return
        file.seek(0)
        number = 0
        while line := file.readline(MAX_LINE_BYTES):
            number += 1
            text = line.decode("utf-8", "surrogateescape").rstrip("\r\n")
            if pattern.search(text):
                yield number, text


def main(arguments: list[str]) -> int:
    expression, root, glob, *skipped = arguments
    try:
        pattern = re.compile(expression)
        walk = FileWalk(Path(root), glob, frozenset(skipped))
    except (re.error, RecursionError, OverflowError) as e:
        sys.stderr.write(f"regex parse error: {e}\n")
        return 2
    for path in walk.files():
        try:
            for number, text in matches(path, pattern):
                line = f"{path}\0{number}:{text[:1000]}\n"
                sys.stdout.buffer.write(line.encode("utf-8", "surrogateescape"))
            sys.stdout.flush()
        except OSError as e:
            walk.note(e)
    return 2 if walk.failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
