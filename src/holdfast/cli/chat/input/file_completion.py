"""Completes file names: those of one directory, or for `@name` also files with that name further down."""

import os
import re
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from prompt_toolkit.completion import Completion

from holdfast.cli.chat.attachments.mentions import QUOTED
from holdfast.tools.search_files import SKIPPED

PATH = re.compile(r'(?:^|(?<=\s))(@"[^"\n]*|@\S*|~?[\w.+-]*/\S*)$')
"""A word that is certainly a file name: it begins with @ or contains a slash."""
MAX_FILES = 100
MAX_VISITED = 5_000
"""Files that a search further down looks at."""
MIN_SEARCHED = 2
"""Shorter names are not searched for further down."""


def complete_path(text: str, workdir: Path) -> list[Completion]:
    """The completions of the path at the end of the text. Blocks on the file system."""
    found = PATH.search(text)
    if found is None:
        return []
    word = found[1]
    typed = word.removeprefix("@").removeprefix('"') if word.startswith("@") else word
    names = list(islice(_in_directory(typed, workdir), MAX_FILES))
    if not names and word.startswith("@") and typed[:1] not in ("/", "~") and len(typed) >= MIN_SEARCHED:
        names = [(path, path) for path in islice(_further_down(typed, workdir), MAX_FILES)]
    return [Completion(_written(path, word), -len(word), display=shown) for path, shown in names]


def _written(path: str, word: str) -> str:
    """The path as it stands in the line. A quoted directory stays open, for what follows."""
    if not word.startswith("@"):
        return path
    if not QUOTED.search(path) and not word.startswith('@"'):
        return f"@{path}"
    return f'@"{path}' if path.endswith("/") else f'@"{path}"'


def _in_directory(typed: str, workdir: Path) -> Iterator[tuple[str, str]]:
    """The path and the name of each entry that begins with what was typed."""
    directory, _, prefix = typed.rpartition("/")
    before = typed[: len(typed) - len(prefix)]
    try:
        start = workdir / Path(f"{directory}/" if directory or typed.startswith("/") else ".").expanduser()
        with os.scandir(start) as entries:
            fitting = [entry for entry in entries if _fits(entry.name, prefix)]
    except (OSError, ValueError, RuntimeError):  # no such directory, not readable, or no such user
        return
    for entry in sorted(fitting, key=lambda entry: entry.name):
        name = entry.name + ("/" if entry.is_dir() else "")
        yield before + name, name


def _fits(name: str, prefix: str) -> bool:
    return name.startswith(prefix) and (bool(prefix) or not name.startswith("."))


def _further_down(typed: str, workdir: Path) -> Iterator[str]:
    """The files and directories below the directory whose names contain what was typed, nearest first.

    What was typed with a slash is looked for in the whole path.
    """
    wanted, visited = typed.lower(), 0
    waiting = [workdir]
    while waiting and visited < MAX_VISITED:
        directory = waiting.pop(0)
        try:
            with os.scandir(directory) as found:
                entries = sorted(islice(found, MAX_VISITED - visited), key=lambda entry: entry.name)
        except OSError:  # not readable
            continue
        visited += len(entries)
        for entry in entries:
            is_directory = entry.is_dir(follow_symlinks=False)
            if is_directory and entry.name in SKIPPED:
                continue
            path = os.path.relpath(entry.path, workdir) + ("/" if is_directory else "")
            if wanted in (path.lower() if "/" in wanted else entry.name.lower()):
                yield path
            waiting += [Path(entry.path)] if is_directory else []
