"""Which of its words a program writes to as files."""

import itertools
import re
from collections.abc import Iterator

from holdfast.tools.command_guard.inline_code import AWKS, SEDS, SHELLS
from holdfast.tools.command_guard.programs import split_names
from holdfast.tools.command_guard.shell_syntax import ShellWord

NO_FILE_ACCESS = frozenset({"echo", "printf", "test", "[", "[[", "type", "which", "true", "false", ":", "command"})
"""Programs that do not open the files they name."""
WRITE_ALL = frozenset({"mv", "tee", "touch", "truncate", "rm", "chmod", "chown", "chgrp", "unlink", "shred", "mkdir"})
WRITE_LAST = frozenset({"cp", "ln", "install", "rsync"})
COPIES = WRITE_LAST | {"mv"}
OUTPUT_OPTIONS = {
    "git": ("o", "--output"),
    "curl": ("o", "--output", "--output-dir"),
    "wget": ("OP", "--output-document", "--directory-prefix"),
    "sort": ("o", "--output"),
    "tar": ("f", "--file"),
    "bsdtar": ("f", "--file"),
}
"""The letters and long names of options whose value is a file that is written."""
READERS = split_names(
    "cat head tail tac nl less more bat grep egrep fgrep rg ag ack wc diff cmp comm ls stat file du tree find fd md5sum "
    "sha1sum sha256sum sha512sum cksum od hexdump strings cut paste join column fold fmt tr realpath readlink basename "
    "dirname cd pushd source . for shellcheck jq yq python python3 node ruby perl rmdir"
)
KNOWN_WRITES = READERS | NO_FILE_ACCESS | WRITE_ALL | WRITE_LAST | OUTPUT_OPTIONS.keys() | {"dd"} | AWKS | SEDS | SHELLS
"""Programs of which it is known which files they write."""
RUNS_FILES = frozenset({".git", ".config"})
"""Directories, apart from the user's home, in which some files run automatically."""


def written(name: str, words: list[ShellWord]) -> list[ShellWord]:
    """The words of a program that are files it writes. A value in one word with its option becomes a word of its own."""
    if name in WRITE_ALL or (name in SEDS and any(re.match(r"-\w*i|--in-place", word.text) for word in words)):
        return words
    if name == "dd":
        return [word for word in words if word.text.startswith("of=")]
    if name == "git" and any(word.text == "bundle" for word in words):
        return words
    if name in OUTPUT_OPTIONS:
        return list(_values(words, *OUTPUT_OPTIONS[name], is_tar=name.endswith("tar")))
    return words[-1:] if name in WRITE_LAST else []


def new_words(found: list[ShellWord], words: list[ShellWord]) -> Iterator[ShellWord]:
    """Those that are not among the words of the command."""
    known = set(map(id, words))
    return (word for word in found if id(word) not in known)


def _values(words: list[ShellWord], letters: str, *names: str, is_tar: bool) -> Iterator[ShellWord]:
    """The values of options, which follow or are in the same word. tar needs no dash."""
    short = re.compile(rf"{'-?' if is_tar else '-'}[A-Za-z0-9]*?[{letters}](?P<value>.*)", re.DOTALL)
    for word, following in itertools.pairwise([*words, ShellWord(())]):
        option, is_joined, value = word.text.partition("=")
        if option.startswith("--"):
            if len(option) > 2 and any(name.startswith(option) for name in names):
                yield ShellWord.literal(value) if is_joined else following
        elif found := short.fullmatch(word.text):
            yield following
            if found["value"]:
                yield ShellWord.literal(found["value"])
