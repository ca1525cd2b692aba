"""The user's own commands: prompts in `<home>/commands/NAME.md` and, for one directory, `.holdfast/commands/NAME.md`.

A file may begin with a header between two lines `---`, with the fields `description` and `argument-hint`. `$ARGUMENTS` in
the text stands for what was typed after the command; without it, the arguments follow the text.
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from holdfast.instructions.rules import project_folders
from holdfast.instructions.text_file import read_text
from holdfast.model.errors import Invalid
from holdfast.model.sanitize import one_line

FOLDER = "commands"
PROJECT_FOLDER = Path(".holdfast") / FOLDER
NAME = re.compile(r"[a-z][\w-]*")
FIELD = re.compile(r"([A-Za-z][\w-]*):\s*(.*)")
FIELDS = ("description", "argument-hint")
MAX_BYTES = 256 * 1024
MAX_FILES = 500
FENCE = "---"
ARGUMENTS = "$ARGUMENTS"


class CustomCommand(msgspec.Struct, frozen=True):
    """A prompt with a name; `problem` says why it cannot be used."""

    name: str
    text: str = ""
    description: str = ""
    usage: str = ""
    problem: str = ""

    @property
    def help(self) -> str:
        return f"! {self.problem}" if self.problem else self.description or one_line(self.text)[:80]

    def expand(self, arguments: str) -> str:
        """The message to send. Raises Invalid if the file has a problem, or the message would be empty."""
        if self.problem:
            raise Invalid(self.problem)
        text = self.text
        if ARGUMENTS in text:
            text = text.replace(ARGUMENTS, arguments)
        elif arguments:
            text = f"{text}\n\n{arguments}"
        if not text.strip():
            raise Invalid(f"the command /{self.name} has no text; write its prompt into the file")
        return text


def load(home: Path, workdir: Path) -> Mapping[str, CustomCommand]:
    """The commands by name. Those of the directory override those of the home; their links must stay in the project."""
    found = {command.name: command for command in _in_folder(home / FOLDER, None)}
    return found | {
        command.name: command for command in _in_folder(workdir / PROJECT_FOLDER, project_folders(workdir)[-1])
    }


def _in_folder(folder: Path, within: Path | None) -> Iterator[CustomCommand]:
    try:
        paths = sorted(path for path in folder.iterdir() if path.suffix == ".md")
    except OSError:  # no such directory, or not readable
        return
    for path in paths[:MAX_FILES]:
        name = path.stem.lower()
        if NAME.fullmatch(name):
            yield _read(path, name, within)


def _read(path: Path, name: str, within: Path | None) -> CustomCommand:
    file = read_text(path, within, max_bytes=MAX_BYTES)
    if file.refused or file.is_missing:
        return CustomCommand(name, problem=f"{path} is not used: {file.refused or 'it was deleted meanwhile'}")
    try:
        return parse(name, file.text)
    except Invalid as e:
        return CustomCommand(name, problem=f"{path} {e}")


def parse(name: str, content: str) -> CustomCommand:
    """Parse the content of a file. Raises Invalid for a malformed header."""
    lines = content.replace("\r\n", "\n").split("\n")
    if lines[0].rstrip() != FENCE:
        return CustomCommand(name, content.strip())
    end = next((number for number, line in enumerate(lines[1:], 1) if line.rstrip() == FENCE), None)
    if end is None:
        raise Invalid(f"has a header without an end; close it with a line {FENCE}")
    fields = dict(_field(number, line) for number, line in enumerate(lines[1:end], 2) if line.strip())
    text = "\n".join(lines[end + 1 :]).strip()
    return CustomCommand(name, text, fields.get("description", ""), fields.get("argument-hint", ""))


def _field(number: int, line: str) -> tuple[str, str]:
    found = FIELD.fullmatch(line.strip())
    if found is None:
        raise Invalid(f"has a malformed header: line {number} is not `name: value`")
    if found[1] not in FIELDS:
        raise Invalid(f"has an unknown field {found[1]!r} in its header; known are {' and '.join(FIELDS)}")
    return found[1], one_line(found[2].strip().strip("\"'"))
