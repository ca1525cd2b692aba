"""What can be known about the variables of a shell text without running it.

A variable that the text does not set comes from the environment, which the model cannot change: it stands for
plain text. One that the text sets once to a plain value stands for that value. Any other is unknown.
"""

import posixpath
import re
from collections.abc import Iterable

from holdfast.tools.command_guard.programs import split_names
from holdfast.tools.command_guard.shell_syntax import EVERYTHING, ShellCommand, ShellWord, WordPart

SIMPLE_VALUE = re.compile(r"[\w./:=@%+,~-]*")
DECLARES = frozenset({"export", "declare", "typeset", "local", "readonly"})
SETS = frozenset({"read", "mapfile", "readarray", "getopts", "printf", "unset", "let", "select"})
SPECIAL = re.compile(
    r"\d+|[@*#?$!_-]|IFS|PS\d|BASH.*|REPLY|OPTARG|OPTIND|RANDOM|SECONDS|LINENO|FUNCNAME|PIPESTATUS|DIRSTACK|COMP_.*"
)
DIRECTORIES = split_names(
    "HOME PWD OLDPWD TMPDIR VIRTUAL_ENV CONDA_PREFIX GOPATH CARGO_HOME JAVA_HOME NVM_DIR PYENV_ROOT"
)
"""Variables of the environment that hold a directory."""
NEVER_EMPTY = split_names("PPID UID EUID USER LOGNAME SHELL PATH HOSTNAME $ ? # !")
ASSIGNS_INSIDE = re.compile(r"\$\{([A-Za-z_]\w*):?=")


class ShellVariables:
    def __init__(self) -> None:
        self._values: dict[str, list[str | None]] = {}
        """What each variable is set to; None for a value that is not known."""

    def note(self, commands: Iterable[ShellCommand]) -> None:
        """Remember which variables the commands set."""
        for command in commands:
            if command.loop_variable is not None:
                self._note_loop(command.loop_variable, command.words)
                continue
            self._note_words(command.words)
            for word in command.words:
                for name in ASSIGNS_INSIDE.findall(word.text):
                    self.mark_unknown(name)

    def mark_unknown(self, name: str) -> None:
        self._values.setdefault(name, []).append(None)

    def _note_loop(self, name: str, words: list[ShellWord]) -> None:
        """A loop over plain words or patterns gives plain words, which are not options."""
        is_plain = all(
            not word.is_computed and not word.text.startswith("-") and " " not in word.text for word in words
        )
        pattern = next((word.text for word in words if word.has_glob and EVERYTHING.fullmatch(word.text)), f"${name}")
        self._values.setdefault(name, []).append(pattern if is_plain and words else None)

    def _note_words(self, words: list[ShellWord]) -> None:
        is_leading = True
        program = ""
        for word in words:
            if is_leading and word.is_assignment:
                self._note_assignment(word)
                continue
            if is_leading:
                program, is_leading = posixpath.basename(word.text), False
            elif program in DECLARES and word.is_assignment:
                self._note_assignment(word)
            elif program in SETS and re.fullmatch(r"[A-Za-z_]\w*", word.text):
                self.mark_unknown(word.text)

    def _note_assignment(self, word: ShellWord) -> None:
        name, _, value = word.text.partition("=")
        is_plain = not word.is_computed and not name.endswith("+") and SIMPLE_VALUE.fullmatch(value)
        self._values.setdefault(re.sub(r"\[.*|\+$", "", name), []).append(value if is_plain else None)

    def without_empty(self, words: list[ShellWord]) -> list[ShellWord]:
        """The words as bash sees them if variables and computed parts of words are empty."""
        shorter: list[ShellWord] = []
        for index, word in enumerate(words):
            kept = tuple(part for part in word.parts if not self._may_be_empty(part))
            is_whole = not any(part.text for part in kept)
            if len(kept) == len(word.parts) or (is_whole and word.is_computed and not self._is_unset(word)):
                shorter.append(word)
            elif not is_whole or any(part.is_quoted for part in word.parts):
                shorter.append(ShellWord(kept or (WordPart("", is_quoted=True),)))
            elif index + 1 == len(words):
                shorter.append(word)  # the name of a file, most likely
        return shorter

    def _is_unset(self, word: ShellWord) -> bool:
        """Whether the text sets none of the variables in a word, and it has no other computed parts."""
        return all(part.variable is not None and part.variable not in self._values for part in word.parts if part.text)

    def _may_be_empty(self, part: WordPart) -> bool:
        """A variable that the text sets may be empty as well: where it is used before, or in another subshell."""
        return part.is_computed and part.variable not in DIRECTORIES and part.variable not in NEVER_EMPTY

    def resolve(self, word: ShellWord, *, in_command_position: bool = False) -> ShellWord:
        """The word with known variables replaced. In the position of a command few variables of the environment are known."""
        if not word.is_computed:
            return word
        return ShellWord(tuple(self._resolve(part, in_command_position=in_command_position) for part in word.parts))

    def _resolve(self, part: WordPart, *, in_command_position: bool) -> WordPart:
        if part.variable is None or SPECIAL.fullmatch(part.variable):
            return part
        values = self._values.get(part.variable)
        if not part.is_quoted and any(separators != "" for separators in self._values.get("IFS", ())):
            return part  # it may be split anywhere
        if values is None:
            is_known = not in_command_position or part.variable in DIRECTORIES
            return WordPart(part.text, is_quoted=True, variable=part.variable) if is_known else part
        value = values[0] if len(values) == 1 else None
        is_looped = value is not None and (value.startswith("$") or EVERYTHING.fullmatch(value) is not None)
        if value is None or (in_command_position and is_looped):
            return part
        return WordPart(value, is_quoted=True, variable=part.variable if is_looped else None)
