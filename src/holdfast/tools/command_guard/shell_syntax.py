"""The parts of shell text that a parser finds: commands, their words, and the parts of a word."""

import re
from dataclasses import dataclass, field

ASSIGNMENT = re.compile(r"[A-Za-z_]\w*(\[[^\]]*\])?\+?=.*", re.DOTALL)
GLOB = re.compile(r"[*?\[]")
EVERYTHING = re.compile(r"(.*/)?(?=.*\*)([*?.]|\[[^]/]*\])+", re.DOTALL)
"""A pattern that matches nearly every file of a directory."""
BRACES = re.compile(r"\{[^{}]*(,|\.\.)[^{}]*\}|\{.*\{")


@dataclass(frozen=True, slots=True)
class WordPart:
    """A piece of a word. `variable` is the name if it is a plain `$name` or `${name}`."""

    text: str
    is_quoted: bool = False
    is_computed: bool = False
    variable: str | None = None


@dataclass(frozen=True, slots=True)
class ShellWord:
    parts: tuple[WordPart, ...]

    @classmethod
    def literal(cls, text: str) -> "ShellWord":
        return cls((WordPart(text, is_quoted=True),))

    @property
    def text(self) -> str:
        """As bash would pass it on, quotes removed; substitutions appear in it as `$()`."""
        return "".join(part.text for part in self.parts)

    @property
    def is_computed(self) -> bool:
        return any(part.is_computed for part in self.parts)

    @property
    def may_split(self) -> bool:
        """Whether bash may turn it into several words or none."""
        return self.has_braces or any(
            part.is_computed and (not part.is_quoted or part.text in {"$@", "${@}"}) for part in self.parts
        )

    @property
    def is_bare(self) -> bool:
        """Whether nothing in it was quoted, escaped or computed, as a keyword must be."""
        return not any(part.is_quoted or part.is_computed for part in self.parts)

    @property
    def has_glob(self) -> bool:
        return any(not part.is_quoted and not part.is_computed and GLOB.search(part.text) for part in self.parts)

    @property
    def has_braces(self) -> bool:
        shape = "".join("x" if part.is_quoted or part.is_computed else part.text for part in self.parts)
        return BRACES.search(shape[:1000]) is not None

    @property
    def starts_computed(self) -> bool:
        return bool(self.parts) and self.parts[0].is_computed

    @property
    def is_assignment(self) -> bool:
        """Whether it has the form `name=value`."""
        return ASSIGNMENT.fullmatch(self.text) is not None


@dataclass(slots=True)
class ShellCommand:
    words: list[ShellWord] = field(default_factory=list)
    targets: list[tuple[str, ShellWord]] = field(default_factory=list)
    """Redirections: the operator and the file."""
    reads_pipe: bool = False
    """Whether it reads from a pipe."""
    input_text: str | None = None
    """The here-document or here-string that is its input."""
    defines: str | None = None
    """The name, if this is the definition of a function. Its body follows as other commands."""
    loop_variable: str | None = None
    """The variable that a `for` or `select` sets to each of the words."""

    @property
    def has_input(self) -> bool:
        """Whether its input is a pipe, a file or a here-document."""
        return self.reads_pipe or self.input_text is not None or any("<" in char for char, _ in self.targets)
