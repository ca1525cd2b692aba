"""Whether a command needs a person's word: its text taken apart and held against the written list of `rules`.

A program that is run by name can do what it likes, so this asks about intent and is no sandbox. What
cannot be read is taken for risky.
"""

import posixpath
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Self

from holdfast.tools.rules import DATABASE_CLIENTS, DESTRUCTIVE_SQL, INLINE_CODE, RULES, SHAPES
from holdfast.tools.sensitive import why_guarded, why_secret
from holdfast.tools.shell import Command, Word, parse

SHELLS = frozenset({"sh", "bash", "zsh", "dash", "ksh", "fish", "ash", "csh", "tcsh"})
LANGUAGE = re.compile(r"(python|pypy|perl|ruby|node|nodejs|deno|bun|php|lua|tclsh|Rscript|osascript)[\d.]*")
CODE_OPTION = re.compile(r"-\w*[cerEp]|--eval|--print|--command|eval")
SCRIPTED = frozenset({"sed", "gsed", "awk", "gawk", "mawk", "nawk"})
"""Programs whose first word is a program too."""
SPEAKERS = frozenset({"echo", "printf", "test", "[", "[[", "ls", "type", "which", "true", "false", ":"})
"""Programs that neither read nor write the files they name."""
PATTERN_FIRST = frozenset({"grep", "egrep", "fgrep", "rg", "ag", "ack", "jq", "yq"})
WRITE_ALL = frozenset({"mv", "tee", "touch", "truncate", "rm", "chmod", "chown"})
WRITE_LAST = frozenset({"cp", "ln", "install", "rsync"})
WRAPPERS = frozenset(
    {"env", "nice", "nohup", "time", "timeout", "gtimeout", "exec", "command", "builtin", "stdbuf", "setsid", "ionice"}
    | {"xargs", "parallel", "busybox", "toybox", "strace", "ltrace", "chrt", "taskset", "caffeinate", "unbuffer"}
    | {"chroot", "unshare", "nsenter", "flock", "script", "coproc", "watch"}
)
KEYWORDS = frozenset({"if", "then", "else", "elif", "fi", "do", "done", "while", "until", "!", "{", "}", "esac"})
HEADERS = frozenset({"for", "case", "select"})
ASSIGNMENT = re.compile(r"[A-Za-z_]\w*(\[[^\]]*\])?\+?=.*", re.DOTALL)
EXECUTES = re.compile(r"-(exec|ok)(dir)?|-[xX]|--exec(-batch)?")
NO_COMMAND = re.compile(r"-.*|\d+(\.\d+)?[smhd]?|\{\}|", re.DOTALL)
MAX_LENGTH = 50_000
MAX_DEPTH = 8
MAX_INNER = 100
MAX_WORD = 1_000
"""Of each word that much is held against a rule; the time some patterns take grows with its square."""


@dataclass(frozen=True, slots=True)
class Rule:
    patterns: tuple[re.Pattern[str], ...]
    reason: str

    @classmethod
    def of(cls, row: str, reason: str) -> Self:
        return cls(tuple(re.compile(pattern, re.DOTALL) for pattern in row.split()), reason)

    def fits(self, words: list[str]) -> bool:
        """Whether each pattern finds a word of its own, in order."""
        name, *further = self.patterns
        if not name.fullmatch(words[0]):
            return False
        rest = iter(words[1:])
        return all(any(pattern.fullmatch(word) for word in rest) for pattern in further)


_rules = [Rule.of(row, reason) for row, reason in RULES]
_shapes = [(re.compile(pattern), reason) for pattern, reason in SHAPES]
_sql = re.compile(DESTRUCTIVE_SQL)
_code = re.compile(INLINE_CODE)


def why_risky(command: str, home: Path | None = None) -> str | None:
    """Why a person must be asked before this command runs; None if nobody need be. `home` is Holdfast's own folder."""
    if len(command) > MAX_LENGTH:
        return f"the command has {len(command):,} characters, too many to be checked"
    for pattern, reason in _shapes:
        if pattern.search(command):
            return f"`{_short(command)}`: {reason}"
    return _Checker(home).why_text(command, depth=0)


class _Checker:
    """Reads one command. Commands inside commands are counted, so that none can keep it busy."""

    def __init__(self, home: Path | None) -> None:
        self._home = home
        self._inner_left = MAX_INNER

    def why_text(self, text: str, depth: int) -> str | None:
        try:
            commands = parse(text)
        except (ValueError, RecursionError) as e:
            return f"the command cannot be read and so not be checked ({e})"
        names = {posixpath.basename(word.text) for command in commands for word in command.words}
        if names & DATABASE_CLIENTS and _sql.search(text):
            return f"`{_short(text)}`: it deletes data from a database"
        return _first(self._why_command(command, depth) for command in commands)

    def _why_command(self, command: Command, depth: int) -> str | None:
        words = _from_program(command.words)
        return (
            self._why_targets(command)
            or self._why_assigned(command.words)
            or (self._why_read(words) if words else None)
            or (self._why_program(words, command, depth) if words else None)
        )

    def _why_targets(self, command: Command) -> str | None:
        return _first(
            why_guarded(word.text, self._home) if ">" in sign else why_secret(word.text, self._home)
            for sign, word in command.targets
        )

    def _why_assigned(self, words: list[Word]) -> str | None:
        assigned = takewhile(lambda word: ASSIGNMENT.fullmatch(word.text), words)
        return _first(why_secret(word.text.partition("=")[2], self._home) for word in assigned)

    def _why_program(self, words: list[Word], command: Command, depth: int) -> str | None:
        """Why one program with its words is risky; what wrappers such as env and xargs run is looked at too."""
        name = posixpath.basename(words[0].text)
        if _is_hidden(words[0], name):
            return f"the program `{_short(words[0].text)}` is only known when it runs"
        arguments = [word.text for word in words[1:]]
        texts = [name, *(text[:MAX_WORD] for text in arguments)]
        for rule in _rules:
            if rule.fits(texts):
                return f"`{_short(' '.join(texts))}`: {rule.reason}"
        return (
            _first(why_guarded(path, self._home) for path in _written(name, arguments))
            or self._why_code(name, arguments, command, depth)
            or _first(self._why_wrapped(inner, command, depth + 1) for inner in _wrapped(name, words))
        )

    def _why_wrapped(self, words: list[Word], command: Command, depth: int) -> str | None:
        return self._why_too_deep(depth) or self._why_program(words, command, depth)

    def _why_inner(self, text: str, depth: int) -> str | None:
        return self._why_too_deep(depth) or self.why_text(text, depth)

    def _why_too_deep(self, depth: int) -> str | None:
        self._inner_left -= 1
        is_too_deep = depth > MAX_DEPTH or self._inner_left < 0
        return "the command hides other commands too deep to be checked" if is_too_deep else None

    def _why_read(self, words: list[Word]) -> str | None:
        """Why the files that a command names are no business of a model."""
        name, *arguments = (word.text for word in words)
        name = posixpath.basename(name)
        if name in SPEAKERS:
            return None
        if name in PATTERN_FIRST and not {"-e", "-f"} & set(arguments):
            arguments = _without_pattern(arguments)
        reads_code = name in SCRIPTED or LANGUAGE.fullmatch(name) is not None
        paths = (path for text in arguments for path in _paths(text, is_code=reads_code))
        return _first(why_secret(path, self._home) for path in paths)

    def _why_code(self, name: str, arguments: list[str], command: Command, depth: int) -> str | None:
        """Why the text that a program is told to run is risky."""
        if name in {"eval", "watch", "ssh"}:
            inner = [text for text in arguments if not text.startswith("-")]
            return self._why_inner(" ".join(inner[name == "ssh" :]), depth + 1)
        if name in SHELLS | {".", "source"} and "<()" in arguments:
            return f"`{name}` runs what another command prints"
        if name in SHELLS:
            script = _script(arguments) or command.text_fed
            return self._why_inner(script, depth + 1) if script else _why_fed(name, arguments, command)
        if name in SCRIPTED and "system" in " ".join(arguments):
            return f"`{name}` runs commands that are hidden in its text"
        return _why_language(name, arguments, command) if LANGUAGE.fullmatch(name) else None


def _script(arguments: list[str]) -> str | None:
    """What a shell is told to run by `-c`."""
    rest = iter(arguments)
    if any(re.fullmatch(r"-\w*c", text[:MAX_WORD]) for text in rest):
        return next((text for text in rest if not text.startswith("-")), None)
    return None


def _why_language(name: str, arguments: list[str], command: Command) -> str | None:
    options = takewhile(lambda text: text.startswith("-") or text == "eval", arguments)
    code = " ".join(arguments) if any(CODE_OPTION.fullmatch(text) for text in options) else command.text_fed
    if _code.search(code):
        return f"`{name}` runs code that deletes files or starts other programs"
    return None if code else _why_fed(name, arguments, command)


def _why_fed(name: str, arguments: list[str], command: Command) -> str | None:
    reads_input = command.is_fed and all(text.startswith("-") for text in arguments)
    return f"`{name}` runs what another command prints" if reads_input else None


def _from_program(words: list[Word]) -> list[Word]:
    """The words from the program's name on: no keywords and assignments before it. A loop's header runs nothing."""
    place = 0
    while place < len(words):
        text = words[place].text
        if text in HEADERS:
            return []
        if text not in KEYWORDS | {"function"} and not ASSIGNMENT.fullmatch(text):
            return words[place:]
        place += 2 if text == "function" else 1
    return []


def _wrapped(name: str, words: list[Word]) -> Iterator[list[Word]]:
    """The commands a wrapper may run: from its first word that is no option, and from all that may belong to one."""
    if name in {"find", "fd"}:
        places = [place for place, word in enumerate(words, start=1) if EXECUTES.fullmatch(word.text)]
        yield from (words[place:] for place in places if words[place:])
    asks_only = name == "command" and len(words) > 1 and words[1].text in {"-v", "-V"}
    if name not in WRAPPERS or asks_only:
        return
    for place, word in enumerate(words[1:], start=1):
        if NO_COMMAND.fullmatch(word.text) or ASSIGNMENT.fullmatch(word.text):
            continue
        yield words[place:]
        if not words[place - 1].text.startswith("-"):
            return


def _is_hidden(word: Word, name: str) -> bool:
    """Whether the name can only be known by running: computed, or spelt with signs that bash expands."""
    if name in {"[", "[["}:
        return False
    return (word.is_computed and "$" in name) or bool(re.search(r"[*?\[]|\{.*,.*\}", name[:MAX_WORD]))


def _without_pattern(arguments: list[str]) -> list[str]:
    place = next((place for place, text in enumerate(arguments) if not text.startswith("-")), len(arguments))
    return arguments[:place] + arguments[place + 1 :]


def _written(name: str, arguments: list[str]) -> Iterable[str]:
    if name in WRITE_ALL or (name in SCRIPTED and any(re.match(r"-i|--in-place", text) for text in arguments)):
        return arguments
    if name == "dd":
        return [text.removeprefix("of=") for text in arguments if text.startswith("of=")]
    return arguments[-1:] if name in WRITE_LAST else ()


def _paths(text: str, *, is_code: bool) -> Iterable[str]:
    """What in a word may be a path. A word with spaces is prose, unless the program reads it as code."""
    if is_code:
        return re.split(r"[\s'\"()\[\]{}=@:,;|<>]+", text)
    if re.search(r"\s", text):
        return ()
    return {text, *re.split(r"[=@:,]", text), re.sub(r"^-\w", "", text)}


def _first(reasons: Iterable[str | None]) -> str | None:
    return next((reason for reason in reasons if reason), None)


def _short(text: str) -> str:
    line = " ".join(text[:500].split())
    return line if len(line) <= 80 else f"{line[:79]}…"
