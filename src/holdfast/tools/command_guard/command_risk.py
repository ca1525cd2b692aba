"""Decides whether a shell command needs approval: it is parsed and compared with the list in `risk_rules`.

The check fails closed: a command that is not fully understood needs approval. A program that is run by its
name can still do anything, so this check judges what a command says, and the sandbox limits what it can do.
"""

import fnmatch
import posixpath
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

from holdfast.model.finding import Finding
from holdfast.model.text import truncate
from holdfast.tools.command_guard.brace_expansion import expand
from holdfast.tools.command_guard.command_paths import CommandPaths, TooManyPaths
from holdfast.tools.command_guard.git_risks import find_git_risks
from holdfast.tools.command_guard.inline_code import AWKS, SHELLS, find_inline_code, is_editor, is_language, runs_code
from holdfast.tools.command_guard.programs import INSTALLERS, INSTALLS, OPTION_SENSITIVE, PLAIN, SHADOWED
from holdfast.tools.command_guard.risk_rules import DATABASE_CLIENTS, DESTRUCTIVE_SQL, RULES, SHAPES, SQL_IGNORED
from holdfast.tools.command_guard.shell_parser import parse
from holdfast.tools.command_guard.shell_syntax import EVERYTHING, ShellCommand, ShellWord
from holdfast.tools.command_guard.shell_variables import DECLARES, DIRECTORIES, SETS, ShellVariables
from holdfast.tools.command_guard.variable_risks import CHANGES_LOADED, LOADED_BY_PROGRAMS, find_variable_risk
from holdfast.tools.command_guard.wrappers import WRAPPERS, unwrap
from holdfast.tools.command_guard.written_files import NO_FILE_ACCESS
from holdfast.tools.home_guard import is_protected
from holdfast.tools.sensitive_paths import why_guarded, why_run_automatically, why_secret

ACTIVATES = re.compile(r"(.*/)?bin/activate(\.fish|\.csh)?")
EXECUTES = re.compile(r"-(exec|ok)(dir)?|-[xX]|--exec(-batch)?")
COMMAND_IN_INDEX = re.compile(r"\w\[.*(\$\(|`)", re.DOTALL)
"""Arithmetic and variable tests run a command substitution in an array index, even if it is quoted."""
MAX_LENGTH = 50_000
MAX_DEPTH = 8
MAX_INNER = 100
MAX_WORD = 1_000
"""Only this much of each word is compared with a rule: the time of some patterns grows with the square of the length."""
MAX_SUFFIXES = 50

OPTION_FILES = ("-r", "-R", "-rf", "-fr", "-Rf", "--recursive", "--delete")
"""Names of files that are options for a program to which a pattern passes them."""
HIDDEN = "which program runs is only known at run time"


@dataclass(frozen=True, slots=True)
class RiskRule:
    patterns: tuple[re.Pattern[str], ...]
    reason: str
    long_options: tuple[frozenset[str], ...]
    """The long options among the alternatives of each pattern, for abbreviations of them."""

    @classmethod
    def of(cls, row: str, reason: str) -> Self:
        patterns = tuple(re.compile(pattern, re.DOTALL) for pattern in row.split())
        return cls(patterns, reason, tuple(frozenset(re.findall(r"--[a-z][a-z-]+", p.pattern)) for p in patterns))

    def fits(self, words: list[str], wild: frozenset[int] = frozenset()) -> bool:
        """Whether each pattern matches a different word, in order. A word at a position in `wild` may be any option."""
        if not self.patterns[0].fullmatch(words[0]):
            return False
        if wild and len(words) > 1 and len(self.patterns) > 1:
            return True
        rest = iter(words[1:])
        return all(
            any(self._is_found(pattern, options, word) for word in rest)
            for pattern, options in zip(self.patterns[1:], self.long_options[1:], strict=True)
        )

    def _is_found(self, pattern: re.Pattern[str], options: frozenset[str], word: str) -> bool:
        if pattern.fullmatch(word):
            return True
        option = word.partition("=")[0]
        return len(option) > 2 and option.startswith("--") and any(full.startswith(option) for full in options)


_rules = [RiskRule.of(row, reason) for row, reason in RULES]
_shapes = [(re.compile(pattern), reason) for pattern, reason in SHAPES]
_sql = re.compile(DESTRUCTIVE_SQL)


@dataclass(frozen=True, slots=True)
class CommandVerdict:
    """The result of checking a command."""

    findings: tuple[Finding, ...]
    """Why a person must approve it; empty if it needs no approval."""
    refused: tuple[str, ...] = ()
    """Paths in Holdfast's home that it names. Such a command must not run, whoever approves it."""


def find_risks(command: str, home: Path | None = None, workdir: Path | None = None) -> tuple[Finding, ...]:
    """Every reason why a person must approve this command before it runs; empty if it needs no approval.

    `home` is Holdfast's own directory, `workdir` the one in which the command runs.
    """
    return check_command(command, home, workdir, ()).findings


def check_command(command: str, home: Path | None, workdir: Path | None, allowed: Sequence[Path]) -> CommandVerdict:
    """As `find_risks`, and which paths in the home it names that are in none of the allowed directories."""
    if len(command) > MAX_LENGTH:
        return CommandVerdict((Finding(f"the command has {len(command):,} characters, too many to be checked"),))
    shapes = [Finding(reason, _short(command)) for pattern, reason in _shapes if pattern.search(command)]
    checker = _CommandChecker(home, workdir, allowed)
    findings = tuple(dict.fromkeys([*shapes, *checker.in_text(command, depth=0)]))
    return CommandVerdict(findings, tuple(dict.fromkeys(checker.refused)))


class _CommandChecker:
    """Checks one command. Nested commands are counted, so that none can make the check slow."""

    def __init__(self, home: Path | None, workdir: Path | None, allowed: Sequence[Path]) -> None:
        self.refused: list[str] = []
        self._allowed = allowed
        self._home = home
        self._workdir = workdir
        self._inner_left = MAX_INNER
        self._variables = ShellVariables()
        self._paths = CommandPaths(workdir)

    def in_text(self, text: str, depth: int) -> Iterator[Finding]:
        try:
            commands = parse(text)
        except (ValueError, RecursionError) as e:
            yield Finding(f"the command cannot be parsed, so it cannot be checked ({e})")
            return
        self._variables.note(commands)
        names = {posixpath.basename(word.text) for command in commands for word in command.words}
        if names & DATABASE_CLIENTS and _sql.search(SQL_IGNORED.sub(" ", text)):
            yield Finding("deletes data from a database, or runs programs from the client", _short(text))
        self._paths.words_become_files |= bool(names & {"xargs", "parallel"}) or any(
            map(_opens_computed_files, commands)
        )
        try:
            for command in commands:
                yield from self._in_command(command, depth)
        except TooManyPaths:
            yield Finding("names more files than can be checked")

    def _in_command(self, command: ShellCommand, depth: int) -> Iterator[Finding]:
        if command.defines is not None and posixpath.basename(command.defines) in SHADOWED:
            yield Finding("redefines a known command", command.defines)
        yield from self._in_assignments(command.words)
        for word in command.words:
            if COMMAND_IN_INDEX.search("".join(part.text for part in word.parts if not part.is_computed)[:MAX_WORD]):
                yield Finding("may run a command in an array index", _short(word.text))
        if command.loop_variable is not None:
            yield from self._in_paths(command, [ShellWord.literal("for"), *command.words])
            return
        words = _from_program(command.words)
        found = list(self._in_words(words, command, depth))
        yield from found
        shorter = self._variables.without_empty(words)
        targets = [(char, self._variables.without_empty([word])[0]) for char, word in command.targets]
        if shorter != words or targets != command.targets:
            reasons = {finding.reason for finding in found}
            more = self._in_words(shorter, replace(command, targets=targets), depth)
            yield from (finding for finding in more if finding.reason not in reasons)

    def _in_words(self, words: list[ShellWord], command: ShellCommand, depth: int) -> Iterator[Finding]:
        resolved = [*words[:1], *(self._variables.resolve(word) for word in words[1:])]
        yield from self._in_paths(command, resolved)
        if words:
            yield from self._in_program(resolved, command, depth)

    def _in_paths(self, command: ShellCommand, words: list[ShellWord]) -> Iterator[Finding]:
        targets = [(char, self._variables.resolve(word)) for char, word in command.targets]
        expanded = [*words[:1], *(one for word in words[1:] for one in expand(word))]
        for named in self._paths.of(replace(command, targets=targets), expanded):
            if any(is_protected(path, self._home, self._allowed) for path in named.paths):
                self.refused.append(named.text)
            for path in (named.text, *sorted(named.paths)):
                if named.is_written:
                    found = why_guarded(path, self._home)
                else:
                    found = why_secret(path, self._home) if named.is_read else ()
                    found = found or (why_run_automatically(path) if named.may_be_written else ())
                if found:
                    yield from (Finding(one.reason, named.text) for one in found)
                    break

    def _in_assignments(self, words: list[ShellWord]) -> Iterator[Finding]:
        for word in words:
            if not word.is_assignment:
                return
            yield from self._in_assignment(word)

    def _in_assignment(self, word: ShellWord) -> Iterator[Finding]:
        name, is_assignment, value = word.text.partition("=")
        if is_assignment and (reason := find_variable_risk(name.removesuffix("+"), value)):
            yield Finding(reason, _short(word.text))

    def _in_program(
        self, words: list[ShellWord], command: ShellCommand, depth: int, *, reads_words_from_input: bool = False
    ) -> Iterator[Finding]:
        """The risks of one program with its words. `reads_words_from_input`: it is given further words when it runs."""
        if _is_hidden(words[0], self._variables):
            yield Finding(HIDDEN, _short(words[0].text))
            return
        words = [self._variables.resolve(words[0]), *words[1:]]
        name = posixpath.basename(words[0].text)
        if words[0].is_assignment:
            return
        texts = [name, *(word.text[:MAX_WORD] for word in words[1:])]
        found = list(self._in_rules(name, texts, words))
        expanded = [*words[:1], *(one for word in words[1:] for one in expand(word))]
        if len(expanded) != len(words):
            words = expanded
            texts = [name, *(word.text[:MAX_WORD] for word in words[1:])]
            found += [one for one in self._in_rules(name, texts, words) if one.reason not in {f.reason for f in found}]
        yield from found
        yield from self._in_builtin(name, words)
        if name == "ssh" and command.has_input:
            yield Finding("sends its input to another machine", _short(" ".join(texts)))
        if name == "git":
            for reason, script in find_git_risks(words, self._workdir):
                yield from [Finding(reason, _short(" ".join(texts)))] if reason else self._in_inner(script, depth + 1)
        code = find_inline_code(name, words, command)
        if code.problem:
            yield Finding(code.problem, _short(" ".join(texts)))
        elif code.script is not None:
            yield from self._in_inner(code.script, depth + 1)
        yield from self._in_wrapped(name, words, command, depth, reads_words_from_input=reads_words_from_input)

    def _in_rules(self, name: str, texts: list[str], words: list[ShellWord]) -> Iterator[Finding]:
        wild = frozenset(
            index
            for index, word in enumerate(words)
            if index and name in OPTION_SENSITIVE and _may_be_option(word) and "--" not in texts[:index]
        )
        for rule in _rules:
            if rule.fits(texts, wild):
                reason = "its options are only known at run time" if not rule.fits(texts) else rule.reason
                yield Finding(reason, _short(" ".join(texts)))
                if wild:
                    return

    def _in_builtin(self, name: str, words: list[ShellWord]) -> Iterator[Finding]:
        """Builtins of the shell that run text or change what names mean."""
        part = _short(" ".join(word.text for word in words))
        arguments = [word.text for word in words[1:]]
        if name == "eval" and arguments:
            yield Finding("runs text that is built at run time", part)
        elif name in {"source", "."} and not ACTIVATES.fullmatch("".join(arguments[:1])):
            yield Finding("runs commands from a file in this shell, which changes what follows", part)
        elif name == "alias" and any("=" in text for text in arguments):
            yield Finding("redefines a command name", part)
        elif name == "trap" and arguments and arguments[0] not in {"-", "", "-l", "-p"}:
            yield Finding("runs a command later, when the shell gets a signal or ends", part)
        elif name in DECLARES:
            yield from self._in_assignments([word for word in words[1:] if "=" in word.text])
        if name in (DECLARES | SETS) - {"unset"} and any(LOADED_BY_PROGRAMS.fullmatch(text) for text in arguments):
            yield Finding(CHANGES_LOADED, part)

    def _in_wrapped(
        self, name: str, words: list[ShellWord], command: ShellCommand, depth: int, *, reads_words_from_input: bool
    ) -> Iterator[Finding]:
        """The risks of the commands that a program runs."""
        asks_only = name == "command" and len(words) > 1 and words[1].text in {"-v", "-V"}
        if name in WRAPPERS and not asks_only:
            inside = unwrap(name, words)
            if name == "env":
                for word in words[1:]:
                    yield from self._in_assignment(word)
            if inside.problem or (reads_words_from_input and not inside.command and not inside.scripts):
                yield Finding(inside.problem or HIDDEN, _short(" ".join(word.text for word in words)))
                yield from self._in_suffixes(words, command, depth)
            for script in inside.scripts:
                is_known = not script.is_computed
                yield from self._in_inner(script.text, depth + 1) if is_known else self._in_computed(script, depth)
            if inside.command:
                yield from self._in_next(list(inside.command), command, depth, reads_words_from_input=name == "xargs")
        elif name in {"find", "fd", "fdfind"}:
            for index, word in enumerate(words, start=1):
                if EXECUTES.fullmatch(word.text) and words[index:]:
                    end = next((at for at in range(index, len(words)) if words[at].text == ";"), len(words))
                    if end == index:
                        continue
                    yield from self._in_next(words[index:end], command, depth, reads_words_from_input=True)
        elif name not in PLAIN and not asks_only and (not runs_code(name) or is_editor(name)):
            yield from self._in_suffixes(words, command, depth)

    def _in_computed(self, script: ShellWord, depth: int) -> Iterator[Finding]:
        """Shell text that is partly computed: its literal parts are checked as if the rest were plain words."""
        if script.starts_computed:
            yield Finding(HIDDEN, _short(script.text))
            return
        text = "".join('"$computed"' if part.is_computed else part.text for part in script.parts)
        self._variables.mark_unknown("computed")
        yield from self._in_inner(text, depth + 1)

    def _in_next(
        self, words: list[ShellWord], command: ShellCommand, depth: int, *, reads_words_from_input: bool
    ) -> Iterator[Finding]:
        if too_deep := self._too_deep(depth + 1):
            yield too_deep
            return
        if words[0].text == "{}":
            yield Finding(HIDDEN, _short(" ".join(word.text for word in words)))
            return
        yield from self._in_program(words, command, depth + 1, reads_words_from_input=reads_words_from_input)

    def _in_suffixes(self, words: list[ShellWord], command: ShellCommand, depth: int) -> Iterator[Finding]:
        """A program that is not known may run the command in its arguments, as one word or as several."""
        name = posixpath.basename(words[0].text)
        if name in INSTALLERS and any(word.text in INSTALLS for word in words[1:3]):
            return
        for index in range(1, min(len(words), MAX_SUFFIXES)):
            text = words[index].text
            if re.search(r"\s", text) and not words[index].is_computed:
                yield from self._in_prose(text, depth)
            elif _is_of_interest(posixpath.basename(text)) and (index + 1 < len(words) or command.has_input):
                if too_deep := self._too_deep(depth + 1):
                    yield too_deep
                    return
                yield from self._in_program(words[index:], command, depth + 1)
                return

    def _in_prose(self, text: str, depth: int) -> Iterator[Finding]:
        """A word with spaces: treated as shell text if its first word is a command that may need approval."""
        value = re.sub(r"^-?-?[\w.-]+=", "", text)
        first = posixpath.basename(value.split(maxsplit=1)[0]) if value.strip() else ""
        if _is_of_interest(first):
            yield from self._in_inner(value, depth + 1)

    def _in_inner(self, text: str, depth: int) -> Iterator[Finding]:
        if too_deep := self._too_deep(depth):
            yield too_deep
        else:
            yield from self.in_text(text, depth)

    def _too_deep(self, depth: int) -> Finding | None:
        self._inner_left -= 1
        is_too_deep = depth > MAX_DEPTH or self._inner_left < 0
        return Finding("commands are nested too deeply to be checked") if is_too_deep else None


def _is_hidden(word: ShellWord, variables: ShellVariables) -> bool:
    """Whether the program can only be known by running the command."""
    if word.text in {"[", "[["}:
        return False
    if any(part.variable and not part.is_computed and part.variable not in DIRECTORIES for part in word.parts):
        return True  # it was resolved as an argument, before it was found to be a program
    known = variables.resolve(word, in_command_position=True)
    if known.has_glob or known.has_braces or known.text in {"", "{}"} or known.text.startswith("-"):
        return True
    if not known.is_computed:
        return False
    is_path = not known.parts[-1].is_computed and "/" in known.parts[-1].text and not known.text.endswith("/")
    return not is_path or known.may_split


def _opens_computed_files(command: ShellCommand) -> bool:
    """Whether a program may open files that a substitution names."""
    words = _from_program(command.words)
    opens_none = bool(words) and posixpath.basename(words[0].text) in NO_FILE_ACCESS
    return not opens_none and any("$()" in word.text for word in (*words, *(word for _, word in command.targets)))


def _may_be_option(word: ShellWord) -> bool:
    """Whether the word may turn out to be an option, or several words."""
    if word.has_braces and word.text[:1] in "{-":
        return True
    if word.has_glob and word.text[:1] in "-?[" and not EVERYTHING.fullmatch(word.text):
        return any(fnmatch.fnmatchcase(name, word.text) for name in OPTION_FILES)
    return word.starts_computed and (word.may_split or len(word.parts) == 1)


def _is_of_interest(name: str) -> bool:
    """Whether a program of that name may need approval."""
    if name in {"exec", "command", "builtin", "coproc", "time"}:  # words of the shell, or of other programs
        return False
    is_known = (
        name in WRAPPERS or name in SHELLS or name in {"eval", "git", "find"} or name in AWKS or is_language(name)
    )
    return is_known or any(rule.patterns[0].fullmatch(name) for rule in _rules)


def _from_program(words: list[ShellWord]) -> list[ShellWord]:
    """The words from the program's name on, without the assignments before it."""
    index = next((index for index, word in enumerate(words) if not word.is_assignment), len(words))
    return words[index:]


def _short(text: str) -> str:
    return truncate(" ".join(text[:500].split()), 80)
