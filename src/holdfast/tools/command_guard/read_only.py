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
    ": arch b2sum base32 basename cal cat cd cksum cmp column comm cut df diff dirname du echo egrep expand "
    "expr false fgrep fmt fold free getconf grep groups head hexdump id join jq ls lsblk lscpu md5sum nl nproc numfmt od "
    "paste pgrep popd ps pushd pwd readlink realpath return rev seq sha1sum sha224sum sha256sum sha384sum sha512sum "
    "sleep stat strings sum tac tail tr true tsort type uname unexpand uptime wc which whoami"
)
"""Programs that write no file, set no variable and run nothing, whatever their arguments are."""
EVALUATED = re.compile(r"\(\(|\$\[|\{\w+\}[<>]|\bcoproc\b|\$\{(?!#?\w+\}|\w+(%%?|##?)[\w.*?/-]*\}|\w+:?-[\w./-]*\})")
"""Arithmetic and all but the simplest expansions: bash evaluates text in them once more, or sets a variable."""
LOOP_VARIABLE = re.compile(r"[a-z_][a-z0-9_]*")
"""Names of variables on which no program and no part of bash depends."""
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
DATE_VALUE = re.compile(r"-[uR]*[drf]|--(date|file|reference)")
"""Options of date whose value is the next word."""
FIND_ACTS = re.compile(r"-(delete|exec|execdir|ok|okdir|fprint|fprint0|fprintf|fls)")
OPTION_RULES: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "sort": ("oT", ("--output", "--compress-program", "--temporary-directory")),
    "tree": ("oR", ("--output",)),
    "rg": ("z", ("--pre", "--hostname-bin", "--search-zip")),
    "file": ("C", ("--compile",)),
    "base64": ("o", ("--output",)),  # that of macOS
}
"""Short options, and long ones, with which the program does more than read."""


def is_read_only(text: str) -> bool:
    """Whether the command certainly changes nothing. False for everything that is not fully understood."""
    if len(text) > MAX_LENGTH or EVALUATED.search(text.replace("\\\n", "")) is not None:
        return False
    try:
        commands = parse(text)
    except (ValueError, RecursionError):
        return False
    return bool(commands) and all(map(_only_reads, commands))


def _only_reads(command: ShellCommand) -> bool:
    if command.defines is not None or not all(_is_read_target(*target) for target in command.targets):
        return False
    if command.loop_variable is not None:
        return LOOP_VARIABLE.fullmatch(command.loop_variable) is not None
    words = command.words
    if not words:
        return bool(command.targets)
    program = words[0]
    if not program.is_bare or program.has_glob or program.has_braces or program.is_assignment:
        return False
    if program.text in READS:
        return True
    if (builtin := _BUILTINS.get(program.text)) is not None:
        return builtin(words[1:])
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


def _printf(words: Sequence[ShellWord]) -> bool:
    """Not with an option, which could set a variable."""
    return not words or (_is_plain(words[0]) and not words[0].text.startswith("-"))


def _test(words: Sequence[ShellWord]) -> bool:
    """Not `-v` and `-R`, which evaluate the index of an array, nor where a variable could stand for them."""
    if any(word.may_split or word.text in ("-v", "-R") for word in words):
        return False
    computed = [number for number, word in enumerate(words) if word.is_computed]
    return not computed or (len(words) == 2 and computed == [1]) or (len(words) == 3 and 1 not in computed)


def _date(words: Sequence[str]) -> bool:
    """Only formats and options: another word would be the new time."""
    values = {number + 1 for number, word in enumerate(words) if DATE_VALUE.fullmatch(word)}
    others = [word for number, word in enumerate(words) if number not in values]
    return all(word[:1] in ("+", "-") and not _is_option(word, "s", ("--set",)) for word in others)


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
    return sum(word == "-" or not word.startswith("-") for word in words) <= 1


def _without_options(name: str) -> Callable[[Sequence[str]], bool]:
    short, long = OPTION_RULES[name]
    return lambda words: not any(_is_option(word, short, long) for word in words)


def _is_option(word: str, short: str, long: Sequence[str]) -> bool:
    """Whether a word may contain one of these options. Long ones may be abbreviated."""
    if word.startswith("--"):
        option = word.partition("=")[0]
        return len(option) > 2 and any(one.startswith(option) for one in long)
    return word.startswith("-") and any(letter in word[1:] for letter in short)


_BUILTINS: Mapping[str, Callable[[Sequence[ShellWord]], bool]] = {"printf": _printf, "test": _test}
_PROGRAMS: Mapping[str, Callable[[Sequence[str]], bool]] = {
    "git": _git,
    "find": _find,
    "sed": _sed,
    "uniq": _uniq,
    "date": _date,
    "hostname": lambda words: not words,
    **{name: _without_options(name) for name in OPTION_RULES},
}
