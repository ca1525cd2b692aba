"""Programs that run the command in their arguments: which of their words are options and where that command begins.

A wrapper is unwrapped only if all of its options are known. An unknown option may take the next word as its
value, so that the start of the command is unknown.
"""

import itertools
import re
from dataclasses import dataclass

from holdfast.tools.command_guard.shell_syntax import ShellWord


@dataclass(frozen=True, slots=True)
class WrapperProgram:
    flags: str = ""
    """Short options without a value."""
    values: str = ""
    """Short options with a value."""
    long_flags: str = ""
    """A value of these, if there is one, follows a `=`."""
    long_values: str = ""
    script: str = ""
    """The option, short or long, whose value is shell text."""
    skipped: int = 0
    """Words between the options and the command."""
    is_text: bool = False
    """Whether the words are joined and given to a shell."""
    numbers: bool = False
    """Whether options such as `-10` are allowed."""
    attached: str = ""
    """Short options whose value, if there is one, follows in the same word."""


@dataclass(frozen=True, slots=True)
class UnwrappedCommand:
    command: tuple[ShellWord, ...] = ()
    scripts: tuple[ShellWord, ...] = ()
    """Shell texts that it runs."""
    problem: str = ""
    """Why it cannot be unwrapped."""


WRAPPERS = {
    "env": WrapperProgram("i0v", "uC", "ignore-environment null debug list-signal-handling", "unset chdir"),
    "nice": WrapperProgram("", "n", "", "adjustment", numbers=True),
    "nohup": WrapperProgram(),
    "time": WrapperProgram("pvaq", "fo", "portability verbose append quiet", "format output"),
    "timeout": WrapperProgram("vfp", "ks", "verbose foreground preserve-status", "kill-after signal", skipped=1),
    "stdbuf": WrapperProgram("", "ioe", "", "input output error"),
    "setsid": WrapperProgram("cfw", "", "ctty fork wait"),
    "ionice": WrapperProgram("t", "cn", "ignore", "class classdata"),
    "chrt": WrapperProgram("abdfimorv", "TPD", "batch fifo idle other rr", skipped=1),
    "taskset": WrapperProgram("ac", "", "all-tasks cpu-list", skipped=1),
    "exec": WrapperProgram("cl", "a"),
    "command": WrapperProgram("p"),
    "builtin": WrapperProgram(),
    "coproc": WrapperProgram(),
    "busybox": WrapperProgram(),
    "toybox": WrapperProgram(),
    "unbuffer": WrapperProgram("p"),
    "caffeinate": WrapperProgram("disum", "tw"),
    "strace": WrapperProgram(
        "cCdfFhiknqrtTvVwxyYzZ", "abeEIoOpPsSuUX", "follow-forks output-separately summary-only syscall-times", "trace"
    ),
    "ltrace": WrapperProgram("cCfhiLrStTV", "aADeFlnopsuwx"),
    "xargs": WrapperProgram(
        "0rtpxo",
        "aEdILnPs",
        "null no-run-if-empty verbose interactive exit open-tty eof replace max-lines",
        "arg-file delimiter max-args max-procs max-chars process-slot-var",
        attached="eil",
    ),
    "parallel": WrapperProgram(
        "0kuXmtr",
        "jaNnILCSd",
        "null keep-order ungroup verbose no-notice bar eta progress halt-on-error dry-run line-buffer will-cite",
        "jobs arg-file max-args delay timeout joblog halt colsep delimiter results retries tagstring",
        is_text=True,
    ),
    "watch": WrapperProgram(
        "bcdegptwCrx",
        "nq",
        "beep color differences errexit chgexit no-title precise exec no-wrap",
        "interval equexit",
        is_text=True,
    ),
    "flock": WrapperProgram(
        "sxneuoFv",
        "wE",
        "shared exclusive nonblock nb unlock close no-fork verbose",
        "timeout wait conflict-exit-code",
        "c command",
        skipped=1,
    ),
    "script": WrapperProgram(
        "aefq",
        "EIOBTmot",
        "append return flush force quiet",
        "echo log-in log-out log-io log-timing logging-format output-limit",
        "c command",
        skipped=1,
    ),
    "ssh": WrapperProgram("46AaCfgKkMNnqsTtVvXxYy", "BbcDEeIiJLlmOopQRSWw", skipped=1, is_text=True),
    "faketime": WrapperProgram("mf", "p", "", "", skipped=1),
    "fakeroot": WrapperProgram(),
    "chronic": WrapperProgram("ve"),
    "entr": WrapperProgram("acdnprxz"),
}
"""Options that are not listed here need approval."""


def unwrap(name: str, words: list[ShellWord]) -> UnwrappedCommand:
    """The command inside a wrapper, or why it cannot be known. `words` begin with the wrapper's name."""
    wrapper = WRAPPERS[name]
    index, skipped = 1, 0
    scripts: list[ShellWord] = []
    while index < len(words):
        word = words[index]
        text = word.text
        if word.starts_computed and word.may_split:
            return UnwrappedCommand(problem=f"the options of {name} are only known at run time")
        if text == "--":
            index += 1
            break
        if name == "env" and "=" in text and not text.startswith("-"):
            index += 1
        elif text.startswith("-") and text != "-":
            taken, script = _option(wrapper, words, index)
            if not taken or (word.is_computed and wrapper.script):
                return UnwrappedCommand(problem=f"{name} has an option that is not understood: {text[:40]}")
            scripts += [script] if script is not None else []
            index += taken
        elif skipped < wrapper.skipped or (text == "-" and name == "env"):
            skipped += text != "-"
            index += 1
        else:
            break
    if index > len(words):
        return UnwrappedCommand(problem=f"the last option of {name} has no value")
    index += max(0, wrapper.skipped - skipped) if words[index - 1].text == "--" else 0
    while name == "env" and index < len(words) and "=" in words[index].text:
        index += 1
    if name == "xargs" and (problem := _replaced(words[1:index], words[index:])):
        return UnwrappedCommand(problem=problem)
    return _inner(name, wrapper, words[index:], scripts)


def _inner(name: str, wrapper: WrapperProgram, rest: list[ShellWord], scripts: list[ShellWord]) -> UnwrappedCommand:
    if name == "script" and not scripts:
        return UnwrappedCommand(problem="script starts a shell that reads its commands from the input")
    if name == "parallel":
        return _parallel(rest)
    if not wrapper.is_text:
        return UnwrappedCommand(tuple(rest), tuple(scripts))
    return UnwrappedCommand(scripts=(join_words(rest),) if rest else ())


def _replaced(options: list[ShellWord], rest: list[ShellWord]) -> str:
    """Why xargs cannot be unwrapped: it puts its input into the name of the program or the text of a shell."""
    text = " ".join(option.text for option in options)
    found = re.search(r"(?:^| )(?:-\w*[Ii]|--replace=?) ?(\S*)", text)
    mark = (found[1] or "{}") if found else ""
    if mark and rest and mark in rest[0].text:
        return "which program runs is only known at run time"
    scripts = [after.text for word, after in itertools.pairwise(rest) if re.fullmatch(r"-\w*c", word.text)]
    reads_pipe = bool(mark) and any(mark in script for script in scripts)
    return "it puts its input into the text that a shell runs" if reads_pipe else ""


def _parallel(rest: list[ShellWord]) -> UnwrappedCommand:
    marks = [index for index, word in enumerate(rest) if word.text.startswith((":::", "::::"))]
    command = rest[: marks[0]] if marks else rest
    if not command:
        return UnwrappedCommand(problem="parallel runs each line of its input as a command")
    return UnwrappedCommand(scripts=(join_words(command),))


def join_words(words: list[ShellWord]) -> ShellWord:
    """The words as one shell text, computed if one of them is."""
    parts = [part for word in words for part in (*word.parts, *ShellWord.literal(" ").parts)]
    return ShellWord(tuple(parts[:-1]))


def _option(wrapper: WrapperProgram, words: list[ShellWord], index: int) -> tuple[int, ShellWord | None]:
    """How many words an option takes, 0 if it is unknown; and its shell text, if it has one."""
    text = words[index].text
    following = words[index + 1] if index + 1 < len(words) else None
    if text.startswith("--"):
        return _long_option(wrapper, text[2:], following)
    if wrapper.numbers and re.fullmatch(r"-\d+", text):
        return 1, None
    for position, letter in enumerate(text[1:], start=2):
        if letter in wrapper.script.split():
            return _with_script(text[position:], following)
        if letter in wrapper.attached:
            return 1, None
        if letter in wrapper.values:
            return (1, None) if text[position:] else (2, None)
        if letter not in wrapper.flags:
            return 0, None
    return 1, None


def _long_option(wrapper: WrapperProgram, text: str, following: ShellWord | None) -> tuple[int, ShellWord | None]:
    name, is_joined, value = text.partition("=")
    matching = {
        full
        for full in f"{wrapper.long_flags} {wrapper.long_values} {wrapper.script}".split()
        if full == name or (len(full) > 1 and full.startswith(name))
    }
    if len(matching) != 1 and name not in matching:
        return 0, None
    full = name if name in matching else matching.pop()
    if full in wrapper.script.split():
        return _with_script(value, following)
    return (2, None) if full in wrapper.long_values.split() and not is_joined else (1, None)


def _with_script(value: str, following: ShellWord | None) -> tuple[int, ShellWord | None]:
    if value:
        return 1, ShellWord.literal(value)
    return (2, following) if following is not None else (0, None)
