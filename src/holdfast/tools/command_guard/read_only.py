"""Decides whether a shell command certainly changes nothing: for plan mode, and for the mode that asks before changes.

A list of programs that only read, with the options that would make them write or run something. Whatever is not on the
list, or not fully understood, may change something.
"""

import re
from collections.abc import Callable, Mapping, Sequence

from holdfast.tools.command_guard.programs import split_names
from holdfast.tools.command_guard.shell_parser import parse
from holdfast.tools.command_guard.shell_syntax import ShellCommand, ShellWord

MAX_LENGTH = 10_000
READS = split_names(
    "[ [[ : arch b2sum base32 base64 basename cal cat cd cksum cmp column comm cut df diff dirname du echo egrep expand "
    "expr false fgrep fmt fold free getconf grep groups head hexdump id join jq ls lsblk lscpu md5sum nl nproc numfmt od "
    "paste pgrep popd printf ps pushd pwd readlink realpath return rev seq sha1sum sha224sum sha256sum sha384sum sha512sum "
    "sleep stat strings sum tac tail test tr true tsort type uname unexpand uptime wc which whoami"
)
"""Programs that write no file and run nothing, whatever their arguments are."""
FD_COPY = re.compile(r"\d+-?|-")
PRINT_LINES = re.compile(r"(\d+|\$)(,(\d+|\$))?p")
"""The only script of sed that is understood."""
GIT_READS = split_names(
    "blame count-objects describe diff for-each-ref grep log ls-files ls-tree merge-base name-rev rev-list rev-parse "
    "shortlog show show-ref status whatchanged"
)
GIT_LISTS: Mapping[str, frozenset[str]] = {
    "branch": split_names("-a -r -v -vv --all --list --remotes --show-current --verbose"),
    "tag": split_names("-l -n --list"),
    "remote": split_names("-v --verbose"),
    "stash": split_names("list show"),
    "worktree": split_names("list --porcelain"),
    "reflog": split_names("show"),
    "config": split_names("-l --list --global --local --show-origin"),
}
"""Subcommands that only list something if they have no other words than these; `branch`, `tag` and `remote` also alone."""
GIT_ALONE = split_names("branch tag remote reflog")
GIT_WRITES = ("--output", "--ext-diff", "--textconv", "--open-files-in-pager")
FIND_ACTS = re.compile(r"-(delete|exec|execdir|ok|okdir|fprint|fprint0|fprintf|fls)")
OPTION_RULES: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "sort": ("oT", ("--output", "--compress-program", "--temporary-directory")),
    "tree": ("oR", ("--output",)),
    "rg": ("", ("--pre", "--hostname-bin", "--search-zip")),
    "date": ("s", ("--set",)),
    "file": ("C", ("--compile",)),
}
"""Short options, and long ones, with which the program does more than read."""


def is_read_only(text: str) -> bool:
    """Whether the command certainly changes nothing. False for everything that is not fully understood."""
    if len(text) > MAX_LENGTH:
        return False
    try:
        commands = parse(text)
    except (ValueError, RecursionError):
        return False
    return bool(commands) and all(map(_only_reads, commands))


def _only_reads(command: ShellCommand) -> bool:
    if command.defines is not None or not all(_is_read_target(*target) for target in command.targets):
        return False
    if any("[" in word.text and ("$(" in word.text or "`" in word.text) for word in command.words):
        return False  # a command in an array index
    if command.loop_variable is not None:
        return True
    words = command.words
    if not words:
        return bool(command.targets)
    program = words[0]
    if not program.is_bare or program.has_glob or program.has_braces or program.is_assignment:
        return False
    if program.text in READS:
        return program.text != "printf" or not any(word.text.startswith("-") for word in words[1:])
    rule = _PROGRAMS.get(program.text)
    return rule is not None and all(map(_is_plain, words[1:])) and rule([word.text for word in words[1:]])


def _is_read_target(operator: str, word: ShellWord) -> bool:
    """Whether a redirection opens no file for writing."""
    if ">" not in operator:
        return True
    if word.is_computed:
        return False
    return word.text == "/dev/null" or (operator.endswith("&") and FD_COPY.fullmatch(word.text) is not None)


def _is_plain(word: ShellWord) -> bool:
    """Whether a word is certainly not an option that it does not look like."""
    starts_plain = not word.parts or word.parts[0].is_quoted or word.parts[0].text[:1] not in tuple("*?[{")
    return not word.is_computed and not word.has_braces and starts_plain


def _git(words: Sequence[str]) -> bool:
    words = list(words)
    while words and words[0] in ("--no-pager", "--no-optional-locks", "-C"):
        del words[: 2 if words[0] == "-C" else 1]
    if not words:
        return False
    name, *rest = words
    if name in GIT_READS:
        short = "O" if name == "grep" else ""
        return not any(_is_option(word, short, GIT_WRITES) for word in rest)
    allowed = GIT_LISTS.get(name)
    return allowed is not None and all(word in allowed for word in rest) and (bool(rest) or name in GIT_ALONE)


def _find(words: Sequence[str]) -> bool:
    return not any(FIND_ACTS.fullmatch(word) for word in words)


def _sed(words: Sequence[str]) -> bool:
    """Only `sed -n 1,5p FILE…`."""
    is_print = len(words) >= 2 and words[0] == "-n" and PRINT_LINES.fullmatch(words[1]) is not None
    return is_print and not any(word.startswith("-") for word in words[2:])


def _uniq(words: Sequence[str]) -> bool:
    """A second operand would be the output file; a value of an option counts as one, to be safe."""
    return sum(not word.startswith("-") for word in words) <= 1


def _without_options(name: str) -> Callable[[Sequence[str]], bool]:
    short, long = OPTION_RULES[name]
    return lambda words: not any(_is_option(word, short, long) for word in words)


def _is_option(word: str, short: str, long: Sequence[str]) -> bool:
    """Whether a word may contain one of these options. Long ones may be abbreviated."""
    if word.startswith("--"):
        option = word.partition("=")[0]
        return len(option) > 2 and any(one.startswith(option) for one in long)
    return word.startswith("-") and any(letter in word[1:] for letter in short)


_PROGRAMS: Mapping[str, Callable[[Sequence[str]], bool]] = {
    "git": _git,
    "find": _find,
    "sed": _sed,
    "uniq": _uniq,
    "hostname": lambda words: not words,
    **{name: _without_options(name) for name in OPTION_RULES},
}
