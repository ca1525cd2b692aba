"""Parses shell text into the simple commands it would run, including those in substitutions.

It covers what people write, not all of bash. Text that it cannot parse raises ValueError, and the caller
must then ask for approval.
"""

import re
from dataclasses import dataclass

from holdfast.tools.command_guard.shell_lexer import ENDS_WORD, ShellLexer
from holdfast.tools.command_guard.shell_syntax import ShellCommand, ShellWord

REDIRECT = re.compile(r"&>>|&>|>>|>\||>&|<&|<>|>|<")
DESCRIPTOR = re.compile(r"(\d+|\{[A-Za-z_]\w*\})(?=[<>])")
KEYWORDS = frozenset({"if", "then", "else", "elif", "fi", "do", "done", "while", "until", "!", "{", "}", "esac"})
TIME_OPTIONS = re.compile(r"([ \t]+-p)?([ \t]+--)?(?=[ \t])")
COPROCESS_NAME = re.compile(r"[ \t]+[A-Za-z_]\w*(?=[ \t]+(\{|\(|\[\[|(while|until|for|if|case|select)[ \t\n]))")
MAX_COMMANDS = 1_000
"""Far more than in real commands. Checking more would block the event loop."""


def parse(text: str) -> list[ShellCommand]:
    """Every simple command in the text, in the order of reading. Raises ValueError for text it cannot parse."""
    return _ShellParser.commands_in(text)


@dataclass(frozen=True, slots=True)
class _HereDocument:
    """A here-document that was announced and not read yet."""

    command: ShellCommand
    end: str
    """The line that ends it."""
    strips_tabs: bool
    is_literal: bool


class _ShellParser(ShellLexer):
    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._pending: list[_HereDocument] = []
        """Here-documents that were announced on this line and follow it."""

    def read_commands(self, closer: str) -> None:
        command, depth, cases = ShellCommand(), 0, 0
        while self.at < len(self.text):
            char = self.text[self.at]
            if char in " \t" or self.text.startswith("\\\n", self.at):
                self.at += 1 if char in " \t" else 2
            elif char == "#":
                end = self.text.find("\n", self.at)
                self.at = len(self.text) if end < 0 else end
            elif char == ")" and not depth:
                self.at += 1
                self.keep(command)
                if not closer:
                    raise ValueError("a ) has no (")
                return
            elif char in "\n;()|" or (char == "&" and not self.text.startswith("&>", self.at)):
                depth = max(0, depth + {"(": 1, ")": -1}.get(char, 0))
                is_definition = char == "(" and self._reads_definition(command)
                depth -= is_definition
                command = ShellCommand() if is_definition else self._separate(command, char, is_case=cases > 0)
            else:
                cases += self._read_piece(command)
        if closer:
            raise ValueError("a substitution is not closed")
        self.keep(command)

    def _reads_definition(self, command: ShellCommand) -> bool:
        """Whether `name ()` is next; it is then consumed."""
        empty = re.compile(r"\([ \t]*\)").match(self.text, self.at)
        if empty is None or len(command.words) != 1:
            return False
        self.at = empty.end()
        self.keep(ShellCommand(defines=command.words[0].text))
        return True

    def _separate(self, command: ShellCommand, char: str, *, is_case: bool) -> ShellCommand:
        if char == "(" and not command.words and self.skip_arithmetic():
            return command
        if char == "(" and command.words:
            raise ValueError("there is a ( inside a command")
        doubled = self.text[self.at : self.at + 2]
        self.at += 2 if doubled in {"&&", "||", "|&", ";;", ";&"} else 1
        if is_case and doubled in {";;", ";&"}:
            self.at += self.text.startswith("&", self.at)
            self._skip_pattern()
        is_pipe = char == "|" and doubled != "||"
        if not command.words and char in "(\n":
            is_pipe = command.reads_pipe
        self.keep(command)
        if char == "\n":
            self._read_documents()
        return ShellCommand(reads_pipe=is_pipe)

    def keep(self, command: ShellCommand) -> None:
        is_loop = command.loop_variable is not None
        if command.words or command.targets or command.defines or command.input_text is not None or is_loop:
            self.found.append(command)
            if len(self.found) > MAX_COMMANDS:
                raise ValueError(f"it contains more than {MAX_COMMANDS:,} commands")

    def _read_piece(self, command: ShellCommand) -> int:
        """Read a word or redirection of a command; 1 at the start of a `case`, -1 at its end."""
        if number := DESCRIPTOR.match(self.text, self.at):
            self.at = number.end()
        if self.text.startswith("<<<", self.at):
            self.at += 3
            command.input_text = self.next_word().text
        elif self.text.startswith("<<", self.at):
            self._announce_document(command)
        elif self.text.startswith(("<(", ">("), self.at):
            command.words.append(self.next_word())
        elif char := REDIRECT.match(self.text, self.at):
            self.at = char.end()
            command.targets.append((char.group(), self.next_word()))
        else:
            return self._take_word(command, self.word())
        return 0

    def _take_word(self, command: ShellCommand, word: ShellWord) -> int:
        """Add a word to its command. Keywords in front of the command are dropped, headers of loops recognised."""
        text = word.text if word.is_bare else ""
        if command.words or command.targets or command.loop_variable is not None:
            command.words.append(word)  # after a redirection, too, bash recognizes no keywords
        elif text == "[[":
            self._read_condition(command, word)
        elif text in {"for", "select"}:
            self._read_loop_header(command)
        elif text == "case":
            self.next_word()
            self.skip_blank()
            if self.word().text != "in":
                raise ValueError("a case has no in")
            self._skip_pattern()
            return 1
        elif text == "time":
            self._skip(TIME_OPTIONS)
        elif text == "coproc":
            self._skip(COPROCESS_NAME)
        elif text == "function":
            self.keep(ShellCommand(defines=self.next_word().text))
        elif text not in KEYWORDS:
            command.words.append(word)
        return -1 if text == "esac" and not command.words else 0

    def _skip(self, pattern: re.Pattern[str]) -> None:
        found = pattern.match(self.text, self.at)
        self.at = found.end() if found else self.at

    def _skip_pattern(self) -> None:
        """Pass over the pattern of a `case` that ends with `)`."""
        self.skip_blank()
        if self.text.startswith("esac", self.at):
            return
        self.at += self.text.startswith("(", self.at)
        while self.at < len(self.text):
            char = self.text[self.at]
            if char == ")":
                self.at += 1
                return
            if char in " \t|":
                self.at += 1
            elif char in ENDS_WORD:
                break
            else:
                self.word()
        raise ValueError("the pattern of a case is not closed")

    def _read_loop_header(self, command: ShellCommand) -> None:
        if self.text.startswith("((", self.at) or self.text.startswith(" ((", self.at):
            self.skip_blank()
            if not self.skip_arithmetic():
                raise ValueError("the header of a loop is not closed")
            return
        name = self.next_word().text
        self.skip_blank()
        if re.compile(r"in(?=[\s;])").match(self.text, self.at):
            self.at += len("in")
            command.loop_variable = name
        else:  # it loops over the arguments, and the next word is not part of the header
            self.keep(ShellCommand(loop_variable=name))

    def _read_condition(self, command: ShellCommand, word: ShellWord) -> None:
        """`[[ … ]]`, in which parentheses, `|`, `<` and `>` are operators."""
        command.words.append(word)
        while self.at < len(self.text):
            if self.text[self.at] in ENDS_WORD:
                self.pass_char()
                continue
            word = self.word()
            command.words.append(word)
            if word.is_bare and word.text == "]]":
                return
        raise ValueError("a [[ is not closed")

    def _announce_document(self, command: ShellCommand) -> None:
        self.at += 2
        strips_tabs = self.text.startswith("-", self.at)
        self.at += strips_tabs
        start = self.at
        word = self.next_word()
        if word.is_computed:
            raise ValueError("the end of a here-document is not understood")
        written = self.text[start : self.at].replace("\\\n", "")
        is_literal = any(quote in written for quote in "'\"\\")
        command.input_text = ""
        self._pending.append(_HereDocument(command, word.text, strips_tabs, is_literal))

    @property
    def is_document_due(self) -> bool:
        return bool(self._pending)

    def _line(self) -> str:
        stop = self.text.find("\n", self.at)
        stop = len(self.text) if stop < 0 else stop
        line, self.at = self.text[self.at : stop], stop + 1
        return line

    def _read_documents(self) -> None:
        for document in self._pending:
            lines = []
            while self.at < len(self.text):
                line = self._line()
                while not document.is_literal and _is_continued(line) and self.at < len(self.text):
                    line = line[:-1] + self._line()
                if (line.lstrip("\t") if document.strips_tabs else line) == document.end:
                    break
                lines.append(line)
            text = document.command.input_text = "\n".join(lines)
            if not document.is_literal:
                self.read_expanded(text)
        self._pending.clear()


def _is_continued(line: str) -> bool:
    """Whether the line ends in a backslash that is not escaped itself."""
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1
