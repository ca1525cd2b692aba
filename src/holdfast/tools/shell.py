"""Shell text taken apart into the simple commands it would run, those in substitutions included.

It reads what a person would write, not all of bash: what it cannot follow raises ValueError, and the
caller must then assume the worst. Nothing is expanded; a word that bash would compute is marked.
"""

import re
from dataclasses import dataclass, field

ENDS_WORD = set(" \t\n;&|()<>")
NAME = re.compile(r"[A-Za-z_]\w*|[0-9@*#?$!-]")
REDIRECT = re.compile(r"&>>|&>|>>|>\||>&|<&|<>|>|<")
DESCRIPTOR = re.compile(r"\d+(?=[<>])")

MAX_ARITHMETIC = 1_000
"""How far the end of `((…))` is looked for; longer ones are read as commands."""
MAX_COMMANDS = 1_000
"""More than anybody writes; reading on would keep everybody else waiting."""
MAX_MISSES = 100
"""How often it may be looked for in vain."""


@dataclass(frozen=True, slots=True)
class Word:
    text: str
    """As bash would pass it on, quotes removed; substitutions stand in it as `$()`."""
    is_computed: bool = False


@dataclass(slots=True)
class Command:
    words: list[Word] = field(default_factory=list)
    targets: list[tuple[str, Word]] = field(default_factory=list)
    """Redirections: the sign and the file."""
    is_fed: bool = False
    """Whether a pipe is its input."""
    text_fed: str = ""
    """The here-document or here-string that is its input."""


def parse(text: str) -> list[Command]:
    """Every simple command in the text, in the order of reading. Raises ValueError for text that makes no sense."""
    reader = _Reader(text)
    reader.read_commands(closer="")
    return reader.found


class _Reader:
    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.found: list[Command] = []
        self.misses = 0
        self.owed: list[tuple[Command, str, bool, bool]] = []
        """Here-documents announced on this line: whose, up to which word, tabs stripped, taken word for word."""

    def read_commands(self, closer: str) -> None:
        command, depth = Command(), 0
        while self.at < len(self.text):
            sign = self.text[self.at]
            if sign in " \t" or self.text.startswith("\\\n", self.at):
                self.at += 1 if sign in " \t" else 2
            elif sign == "#":
                end = self.text.find("\n", self.at)
                self.at = len(self.text) if end < 0 else end
            elif sign == ")" and closer and not depth:
                self.at += 1
                self._keep(command)
                return
            elif sign == ")" and not depth:
                # Only the pattern of a `case` ends so; it is no command.
                self.at += 1
                command = Command()
            elif sign in "\n;()|" or (sign == "&" and not self.text.startswith("&>", self.at)):
                depth = max(0, depth + {"(": 1, ")": -1}.get(sign, 0))
                command = self._separate(command, sign)
            else:
                self._read_piece(command)
        if closer:
            raise ValueError("a substitution is not closed")
        self._keep(command)

    def _separate(self, command: Command, sign: str) -> Command:
        if sign == "(" and not command.words and self._skip_arithmetic():
            return command
        doubled = self.text[self.at : self.at + 2]
        self.at += 2 if doubled in {"&&", "||", "|&", ";;"} else 1
        is_pipe = sign == "|" and doubled != "||"
        if not command.words and sign in "(\n":
            is_pipe = command.is_fed
        self._keep(command)
        if sign == "\n":
            self._read_documents()
        return Command(is_fed=is_pipe)

    def _keep(self, command: Command) -> None:
        if command.words or command.targets:
            self.found.append(command)
            if len(self.found) > MAX_COMMANDS:
                raise ValueError(f"it holds more than {MAX_COMMANDS:,} commands")

    def _read_piece(self, command: Command) -> None:
        if number := DESCRIPTOR.match(self.text, self.at):
            self.at = number.end()
        if self.text.startswith("<<<", self.at):
            self.at += 3
            command.text_fed = self._next_word().text
        elif self.text.startswith("<<", self.at):
            self._announce_document(command)
        elif self.text.startswith(("<(", ">("), self.at):
            command.words.append(self._next_word())
        elif sign := REDIRECT.match(self.text, self.at):
            self.at = sign.end()
            command.targets.append((sign.group(), self._next_word()))
        else:
            command.words.append(self._word())

    def _next_word(self) -> Word:
        while self.at < len(self.text) and self.text[self.at] in " \t":
            self.at += 1
        if self.text.startswith(("<(", ">("), self.at):
            sign = self.text[self.at]
            self.at += 2
            self.read_commands(closer=")")
            return Word(f"{sign}()", is_computed=True)
        return self._word()

    def _word(self) -> Word:
        parts: list[str] = []
        is_computed = False
        while self.at < len(self.text) and (sign := self.text[self.at]) not in ENDS_WORD:
            self.at += 1
            if sign == "'":
                parts.append(self._up_to("'"))
            elif sign == '"':
                text, computed = self._expanding('"')
                parts.append(text)
                is_computed |= computed
            elif sign == "\\":
                parts.append(self.text[self.at : self.at + 1].replace("\n", ""))
                self.at += 1
            elif sign in "$`":
                text, computed = self._substitution(sign)
                parts.append(text)
                is_computed |= computed
            else:
                parts.append(sign)
        return Word("".join(parts), is_computed)

    def _up_to(self, end: str) -> str:
        stop = self.text.find(end, self.at)
        if stop < 0:
            raise ValueError(f"a {end} is not closed")
        part, self.at = self.text[self.at : stop], stop + len(end)
        return part

    def _expanding(self, end: str) -> tuple[str, bool]:
        """Text in which only `\\`, `$` and backquotes mean anything: up to the end sign, or to the end of all."""
        parts: list[str] = []
        is_computed = False
        while self.at < len(self.text):
            sign = self.text[self.at]
            self.at += 1
            if sign == end:
                return "".join(parts), is_computed
            if sign == "\\":
                parts.append(self.text[self.at : self.at + 1])
                self.at += 1
            elif sign in "$`":
                text, computed = self._substitution(sign, is_quoted=True)
                parts.append(text)
                is_computed |= computed
            else:
                parts.append(sign)
        if end:
            raise ValueError(f"a {end} is not closed")
        return "".join(parts), is_computed

    def _substitution(self, sign: str, *, is_quoted: bool = False) -> tuple[str, bool]:
        """What follows a `$` or a backquote, and whether bash would put something else in its place."""
        if sign == "`":
            inner = re.sub(r"\\([\\$`])", r"\1", self._up_to_backquote())
            self.found += parse(inner)
            return "$()", True
        if self.text.startswith("((", self.at) and self._skip_arithmetic():
            return "$()", True
        if self.text.startswith("(", self.at):
            self.at += 1
            self.read_commands(closer=")")
            return "$()", True
        if self.text.startswith("{", self.at):
            self.at += 1
            return "${" + self._expanding("}")[0] + "}", True
        if self.text.startswith("'", self.at) and not is_quoted:
            self.at += 1
            return self._ansi()
        if self.text.startswith('"', self.at) and not is_quoted:
            self.at += 1
            return self._expanding('"')
        if name := NAME.match(self.text, self.at):
            self.at = name.end()
            return f"${name.group()}", True
        return "$", False

    def _up_to_backquote(self) -> str:
        if not (inner := re.compile(r"((?:[^`\\]|\\.)*)`", re.DOTALL).match(self.text, self.at)):
            raise ValueError("a ` is not closed")
        self.at = inner.end()
        return inner.group(1)

    def _ansi(self) -> tuple[str, bool]:
        """`$'…'`: escapes in it can spell any word, so a text with escapes counts as computed."""
        if not (inner := re.compile(r"((?:[^'\\]|\\.)*)'", re.DOTALL).match(self.text, self.at)):
            raise ValueError("a $' is not closed")
        self.at = inner.end()
        text = inner.group(1)
        return (f"${text}", True) if "\\" in text else (text, False)

    def _skip_arithmetic(self) -> bool:
        """Pass over `((…))`, reading the substitutions in it; False, and nothing read, if it is none.

        As for bash, it is one only if the inner pair closes right before the outer.
        """
        if not self.text.startswith("((", self.at):
            return False
        depth, stop = 0, 0
        for sign in re.finditer(r"[()\n]", self.text[self.at + 1 : self.at + MAX_ARITHMETIC]):
            depth += {"(": 1, ")": -1}.get(sign.group(), 0)
            stop = self.at + 1 + sign.start()
            if not depth or sign.group() == "\n":
                break
        if not self.text.startswith("))", stop):
            self.misses += 1
            if self.misses > MAX_MISSES:
                raise ValueError("too many parentheses that do not match")
            return False
        inner = _Reader(self.text[self.at + 2 : stop])
        inner._expanding("")
        self.found += inner.found
        self.at = stop + 2
        return True

    def _announce_document(self, command: Command) -> None:
        self.at += 2
        strips_tabs = self.text.startswith("-", self.at)
        self.at += strips_tabs
        start = self.at
        end = self._next_word().text
        is_literal = any(quote in self.text[start : self.at] for quote in "'\"\\")
        self.owed.append((command, end, strips_tabs, is_literal))

    def _read_documents(self) -> None:
        for command, end, strips_tabs, is_literal in self.owed:
            lines = []
            while self.at < len(self.text):
                stop = self.text.find("\n", self.at)
                stop = len(self.text) if stop < 0 else stop
                line, self.at = self.text[self.at : stop], stop + 1
                if (line.lstrip("\t") if strips_tabs else line) == end:
                    break
                lines.append(line)
            command.text_fed = "\n".join(lines)
            if not is_literal:
                inner = _Reader(command.text_fed)
                inner._expanding("")
                self.found += inner.found
        self.owed.clear()
