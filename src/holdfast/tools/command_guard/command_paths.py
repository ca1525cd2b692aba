"""The files that a shell command names, resolved against the directories it may run in, with links and globs expanded."""

import fnmatch
import itertools
import os
import posixpath
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from holdfast.tools.command_guard.inline_code import AWKS, SEDS, is_language
from holdfast.tools.command_guard.shell_syntax import GLOB, ShellCommand, ShellWord
from holdfast.tools.command_guard.written_files import (
    COPIES,
    KNOWN_WRITES,
    NO_FILE_ACCESS,
    RUNS_FILES,
    new_words,
    written,
)
from holdfast.tools.paths import real_path
from holdfast.tools.sensitive_paths import expand_home

NO_CONTENT_ACCESS = frozenset(
    {"ls", "stat", "du", "basename", "dirname", "realpath", "readlink", "mkdir", "rmdir", "touch"}
)
"""Programs that do not read the contents of the files they name."""
PATTERN_FIRST = frozenset({"grep", "egrep", "fgrep", "rg", "ag", "ack", "jq", "yq"})
CHANGES_DIRECTORY = frozenset({"cd", "pushd"})
DIRECTORY_OPTION = re.compile(r"-C(?P<value>.*)|--(directory|chdir|work-tree|cwd|prefix)(=(?P<long>.*))?", re.DOTALL)
DEFAULT = re.compile(r"\$\{\w+:?[-=+](?P<value>[^}]*)\}")
MAX_DIRECTORIES = 8
MAX_PATHS = 2_000
MAX_ENTRIES = 20_000
"""Directory entries that are compared with patterns before the check gives up."""


class TooManyPaths(Exception):
    """There are more files than can be checked."""


@dataclass(frozen=True, slots=True)
class NamedFile:
    """A file that a command names."""

    text: str
    """As the command has it."""
    paths: frozenset[str]
    """The absolute paths that it may mean, links followed and not."""
    is_written: bool
    is_read: bool
    may_be_written: bool = False
    """Whether the program is not known only to read it."""


class CommandPaths:
    """Collects the files that the commands of one shell text name."""

    def __init__(self, workdir: Path | None) -> None:
        self._directories = [os.path.abspath(workdir)] if workdir is not None else []  # noqa: PTH100 - no links followed
        self._paths_left = MAX_PATHS
        self._entries_left = MAX_ENTRIES
        self.words_become_files = False
        """Whether what one command prints can be the name of a file that another opens."""

    def of(self, command: ShellCommand, words: list[ShellWord]) -> Iterator[NamedFile]:
        """The files of a command, whose words begin with the program's name. Raises TooManyPaths."""
        name = posixpath.basename(words[0].text) if words else ""
        self._note_directories(name, words[1:])
        for char, word in command.targets:
            yield from self._named(word, {word.text}, is_written=">" in char, is_read="<" in char)
        for word in command.words:
            if not word.is_assignment:
                break
            value = word.text.partition("=")[2]
            for named in self._named(ShellWord.literal(value), {value}, is_read=True):
                yield replace(named, may_be_written=word.text.startswith("GIT_TRACE"))
        if command.input_text and not re.search(r"\s", command.input_text.strip()):
            yield from self._named(
                ShellWord.literal(command.input_text.strip()), {command.input_text.strip()}, is_read=True
            )
        if name in NO_FILE_ACCESS and not self.words_become_files:
            return
        written_words = written(name, words[1:])
        for word in (*new_words(written_words, words), *self._copies(name, words[1:], written_words)):
            yield from self._named(word, {word.text}, is_read=False, is_written=True)
        is_written_here = set(map(id, written_words))
        reads_code = name in AWKS or name in SEDS or is_language(name)
        for word in _without_pattern(name, words[1:]):
            is_written = id(word) in is_written_here
            is_read = name not in NO_CONTENT_ACCESS
            pieces = _pieces(word.text, is_code=reads_code) if not re.search(r"\s", word.text) or reads_code else ()
            for named in self._named(word, dict.fromkeys((word.text, *pieces)), is_written=is_written, is_read=is_read):
                yield replace(named, may_be_written=name not in KNOWN_WRITES)

    def _copies(self, name: str, words: list[ShellWord], targets: list[ShellWord]) -> Iterator[ShellWord]:
        """The files that a copy makes in a directory whose files can run automatically."""
        if name not in COPIES:
            return
        for path in {path for target in targets for path in self._absolute(target.text)}:
            if os.path.isdir(path) and (path == str(Path.home()) or posixpath.basename(path) in RUNS_FILES):  # noqa: PTH112
                for word in words:
                    yield ShellWord.literal(posixpath.join(path, posixpath.basename(word.text.rstrip("/"))))

    def _note_directories(self, name: str, words: list[ShellWord]) -> None:
        """Remember where the command, or those after it, may run."""
        found = [word for word in words if not word.text.startswith("-")][:1] if name in CHANGES_DIRECTORY else []
        for word, following in itertools.pairwise([*words, ShellWord(())]):
            if joined := DIRECTORY_OPTION.fullmatch(word.text):
                found.append(ShellWord.literal(value) if (value := joined["value"] or joined["long"]) else following)
        for word in found:
            if word.is_computed or not word.text:
                continue
            paths = self._absolute(word.text)
            if word.has_glob:
                paths = [match for path in paths if posixpath.isabs(path) for match in self._matches(path)]
            new = [path for path in paths if path not in self._directories]
            self._directories += new[: max(0, MAX_DIRECTORIES - len(self._directories))]

    def _absolute(self, text: str) -> list[str]:
        named = expand_home(text)
        if "\0" in named:
            return []
        if posixpath.isabs(named) or not self._directories:
            return [posixpath.normpath(named)] if named else []
        return [posixpath.normpath(posixpath.join(directory, named)) for directory in self._directories]

    def _named(
        self, word: ShellWord, texts: Iterable[str], *, is_read: bool, is_written: bool = False
    ) -> Iterator[NamedFile]:
        for text in {DEFAULT.sub(r"\g<value>", text) for text in texts}:
            if not text or (text != word.text and text.startswith("-")):
                continue
            paths = set(self._absolute(text))
            if re.search(r"\s", text):
                paths = {path for path in paths if os.path.lexists(path)}
            if GLOB.search(text) and word.has_glob:
                matches = {match for path in paths if posixpath.isabs(path) for match in self._matches(path)}
                paths |= {match for match in matches if not text.endswith("/") or os.path.isdir(match)}  # noqa: PTH112
            self._paths_left -= len(paths)
            if self._paths_left < 0:
                raise TooManyPaths
            real = {str(real_path(path)) for path in paths if posixpath.isabs(path)}
            if paths:
                yield NamedFile(text, frozenset(paths | real), is_written, is_read)

    def _matches(self, pattern: str) -> Iterator[str]:
        """The files that match an absolute glob now."""
        *parents, last = pattern.split("/")[1:]
        found = ["/"]
        for part in parents:
            if GLOB.search(part):
                found = [posixpath.join(base, name) for base in found for name in self._names(base, part)]
            else:
                found = [posixpath.join(base, part) for base in found]
        for base in found:
            if GLOB.search(last):
                yield from (posixpath.join(base, name) for name in self._names(base, last))
            elif os.path.lexists(posixpath.join(base, last)):
                yield posixpath.join(base, last)

    def _names(self, directory: str, pattern: str) -> Iterator[str]:
        try:
            names = os.listdir(directory)  # noqa: PTH208 - only names are needed
        except OSError:
            return
        self._entries_left -= len(names)
        if self._entries_left < 0:
            raise TooManyPaths
        for name in names:
            if fnmatch.fnmatchcase(name, pattern.replace("[^", "[!")) and (pattern[0] == "." or name[0] != "."):
                yield name


def _without_pattern(name: str, words: list[ShellWord]) -> list[ShellWord]:
    """The words without the search pattern of grep and similar programs."""
    texts = {word.text for word in words}
    if name not in PATTERN_FIRST or texts & {"-e", "-f", "--regexp", "--file"}:
        return words
    index = next((index for index, word in enumerate(words) if not word.text.startswith("-")), len(words))
    return words[:index] + words[index + 1 :]


def _pieces(text: str, *, is_code: bool) -> Iterable[str]:
    """The parts of a word that may be paths."""
    if is_code:
        return re.split(r"[\s'\"()\[\]{}=@:,;|<>]+", text)[:MAX_PATHS]
    return (*re.split(r"[=@:,]", text), re.sub(r"^-\w", "", text))
