"""Reads the words of shell text: quotes, escapes, variables and substitutions.

Nothing is expanded: a word records which of its parts bash would compute. The commands in substitutions are left to
the parser, which is a subclass.
"""

import re
from abc import ABC, abstractmethod

from holdfast.tools.command_guard.shell_syntax import ShellCommand, ShellWord, WordPart

ENDS_WORD = set(" \t\n;&|()<>")
NAME = re.compile(r"[A-Za-z_]\w*|[0-9@*#?$!-]")
ARRAY = re.compile(r"[A-Za-z_]\w*(\[[^\]]*\])?\+?=")
ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "e": "\x1b", "E": "\x1b", "f": "\f", "v": "\v"}
ESCAPE = re.compile(r"\\(x[0-9A-Fa-f]{1,2}|u[0-9A-Fa-f]{1,4}|U[0-9A-Fa-f]{1,8}|[0-7]{1,3}|c.|.)", re.DOTALL)

MAX_ARITHMETIC = 1_000
"""How far the end of `((…))` is searched for; longer ones are read as commands."""
MAX_MISSES = 100
"""How often the search for the end of `((…))` may fail."""


class ShellLexer(ABC):
    """A position in a text. Methods read from there and move it; they raise ValueError for text they cannot read."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.found: list[ShellCommand] = []
        """Commands read so far, in the order of reading."""
        self._misses = 0

    @abstractmethod
    def read_commands(self, closer: str) -> None:
        """Read commands up to the closing character, or to the end of the text if that is empty."""

    @abstractmethod
    def keep(self, command: ShellCommand) -> None:
        """Add a command to those that were found."""

    @property
    @abstractmethod
    def is_document_due(self) -> bool:
        """Whether a here-document begins with the next line."""

    @classmethod
    def commands_in(cls, text: str) -> list[ShellCommand]:
        """Every command in the text."""
        reader = cls(text)
        reader.read_commands(closer="")
        return reader.found

    def read_expanded(self, text: str) -> None:
        """Read the commands in substitutions of a text that bash expands like one in double quotes."""
        inner = type(self)(text)
        inner._expanding("")
        self.found += inner.found

    def skip_blank(self) -> None:
        while self.at < len(self.text) and self.text[self.at] in " \t\n":
            self.pass_char()

    def pass_char(self) -> None:
        """Pass over one character. A line that ends where a here-document is due is not understood."""
        if self.is_document_due and self.text[self.at] == "\n":
            raise ValueError("a here-document begins inside of another construct")
        self.at += 1

    def _read_inner(self) -> None:
        """The commands of a substitution, up to its `)`."""
        start, is_document_due = self.at, self.is_document_due
        self.read_commands(closer=")")
        if is_document_due and "\n" in self.text[start : self.at]:
            raise ValueError("a here-document begins inside of a substitution")

    def next_word(self) -> ShellWord:
        while self.at < len(self.text) and self.text[self.at] in " \t":
            self.at += 1
        if self.text.startswith(("<(", ">("), self.at):
            char = self.text[self.at]
            self.at += 2
            self._read_inner()
            return ShellWord((WordPart(f"{char}()", is_computed=True, is_quoted=True),))
        return self.word()

    def word(self) -> ShellWord:
        if self.text.startswith("#", self.at):
            raise ValueError("a comment is at a position where it is not understood")
        parts: list[WordPart] = []
        while self.at < len(self.text) and (char := self.text[self.at]) not in ENDS_WORD:
            self.at += 1
            if char == "'":
                parts.append(WordPart(self._up_to("'"), is_quoted=True))
            elif char == '"':
                parts += self._expanding('"')
            elif char == "\\":
                parts.append(WordPart(self.text[self.at : self.at + 1].replace("\n", ""), is_quoted=True))
                self.at += 1
            elif char in "$`":
                parts += self._substitution(char)
            else:
                parts.append(WordPart(self._run(char)))
        if self.text.startswith("(", self.at) and parts:
            self._read_after_word(parts)
        return ShellWord(tuple(parts))

    def _run(self, char: str) -> str:
        """Plain characters from here on."""
        found = re.compile(r"[^\s;&|()<>'\"\\$`]*").match(self.text, self.at)
        assert found is not None, "the expression matches any text"
        self.at = found.end()
        return char + found.group()

    def _read_after_word(self, parts: list[WordPart]) -> None:
        """A `(` that follows a word directly: an array is read, an extended pattern is not understood."""
        text = "".join(part.text for part in parts)
        if ARRAY.fullmatch(text):
            self.at += 1
            parts.append(WordPart("()", is_computed=True))
            array = ShellCommand(loop_variable=re.sub(r"\W.*", "", text))
            while self.at < len(self.text) and self.text[self.at] != ")":
                if self.text[self.at] in " \t\n":
                    self.pass_char()
                elif self.text[self.at] in ENDS_WORD:
                    raise ValueError("an array contains a character that is not understood")
                else:
                    array.words.append(self.word())
            self.keep(array)
            self.at += 1
            if self.at > len(self.text):
                raise ValueError("an array is not closed")
            if self.at < len(self.text) and self.text[self.at] not in ENDS_WORD:
                raise ValueError("an array is followed by text in the same word")
        elif text[-1:] in "?*+@!" and not re.match(r"\([ \t]*\)", self.text[self.at : self.at + 20]):
            raise ValueError("it contains an extended pattern")

    def _up_to(self, end: str) -> str:
        stop = self.text.find(end, self.at)
        if stop < 0:
            raise ValueError(f"a {end} is not closed")
        part, self.at = self.text[self.at : stop], stop + len(end)
        return part

    def _expanding(self, end: str) -> list[WordPart]:
        """Text in which only `\\`, `$` and backquotes are special: up to the end character, or to the end of all."""
        parts: list[WordPart] = [WordPart("", is_quoted=True)]
        plain = re.compile(rf"[^\\$`{re.escape(end)}]+")
        while self.at < len(self.text):
            if run := plain.match(self.text, self.at):
                parts.append(WordPart(run.group(), is_quoted=True))
                self.at = run.end()
                continue
            char = self.text[self.at]
            self.at += 1
            if char == end:
                return parts if len(parts) == 1 else parts[1:]
            if char == "\\":
                parts.append(WordPart(_unescaped(self.text[self.at : self.at + 1]), is_quoted=True))
                self.at += 1
            else:
                parts += self._substitution(char, is_quoted=True)
        if end:
            raise ValueError(f"a {end} is not closed")
        return parts

    def _substitution(self, char: str, *, is_quoted: bool = False) -> list[WordPart]:
        """What follows a `$` or a backquote."""
        if char == "`":
            inner = re.sub(r"\\([\\$`])", r"\1", self._up_to_backquote())
            self.found += self.commands_in(inner)
            return [WordPart("$()", is_quoted, is_computed=True)]
        if self.text.startswith("((", self.at) and self.skip_arithmetic():
            return [WordPart("$()", is_quoted, is_computed=True)]
        if self.text.startswith("(", self.at):
            self.at += 1
            self._read_inner()
            return [WordPart("$()", is_quoted, is_computed=True)]
        if self.text.startswith("{", self.at):
            self.at += 1
            inner = "".join(part.text for part in self._expanding("}"))
            if inner.count("'") % 2 or inner.count('"') % 2:
                raise ValueError("a ${ contains a quote that is not closed")
            if inner.endswith("@P"):
                raise ValueError("it expands text like a prompt, which can run commands")
            name = inner if re.fullmatch(r"[A-Za-z_]\w*", inner) else None
            return [WordPart("${" + inner + "}", is_quoted, is_computed=True, variable=name)]
        if self.text.startswith("[", self.at):
            raise ValueError("it contains $[, which is not understood")
        if self.text.startswith("'", self.at) and not is_quoted:
            self.at += 1
            return [WordPart(self._ansi(), is_quoted=True)]
        if self.text.startswith('"', self.at) and not is_quoted:
            self.at += 1
            return self._expanding('"')
        if found := NAME.match(self.text, self.at):
            self.at = found.end()
            return [WordPart(f"${found.group()}", is_quoted, is_computed=True, variable=found.group())]
        return [WordPart("$", is_quoted)]

    def _up_to_backquote(self) -> str:
        if not (inner := re.compile(r"((?:[^`\\]|\\.)*)`", re.DOTALL).match(self.text, self.at)):
            raise ValueError("a ` is not closed")
        self.at = inner.end()
        return inner.group(1)

    def _ansi(self) -> str:
        """`$'…'`, decoded."""
        if not (inner := re.compile(r"((?:[^'\\]|\\.)*)'", re.DOTALL).match(self.text, self.at)):
            raise ValueError("a $' is not closed")
        self.at = inner.end()
        return ESCAPE.sub(_decoded, inner.group(1))

    def skip_arithmetic(self) -> bool:
        """Pass over `((…))`, reading the substitutions in it; False, and nothing read, if it is none.

        As for bash, it is one only if the inner pair closes right before the outer.
        """
        if not self.text.startswith("((", self.at):
            return False
        depth, stop = 0, 0
        for char in re.finditer(r"[()\n]", self.text[self.at + 1 : self.at + MAX_ARITHMETIC]):
            depth += {"(": 1, ")": -1}.get(char.group(), 0)
            stop = self.at + 1 + char.start()
            if not depth or char.group() == "\n":
                break
        if not self.text.startswith("))", stop):
            self._misses += 1
            if self._misses > MAX_MISSES:
                raise ValueError("too many parentheses do not match")
            return False
        self.read_expanded(self.text[self.at + 2 : stop])
        self.at = stop + 2
        return True


def _unescaped(char: str) -> str:
    """What a backslash before this character means inside double quotes."""
    if char == "\n":
        return ""
    return char if char in '$`"\\' else f"\\{char}"


def _decoded(escape: re.Match[str]) -> str:
    code = escape.group(1)
    if code[0] in "xuU":
        number = int(code[1:], 16) if len(code) > 1 else -1
    elif code[0] in "01234567":
        number = int(code, 8) & 0xFF
    elif code[0] == "c" and len(code) > 1:
        number = ord(code[1]) & 0x1F
    else:
        return ESCAPES.get(code, code if code in "\\'\"?" else escape.group())
    if not 0 < number <= 0x10FFFF:
        raise ValueError("it contains an escape that is not understood")
    return chr(number)
