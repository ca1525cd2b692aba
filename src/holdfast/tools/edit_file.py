"""Replaces a passage of a file."""

import difflib

import msgspec

from holdfast.model.errors import Invalid
from holdfast.model.finding import Finding
from holdfast.model.tool import Effect, Preview, ToolContext, ToolOutput
from holdfast.tools.atomic_replace import FileChange, FileEditor, short_diff
from holdfast.tools.file_snapshot import FileSnapshot
from holdfast.tools.spec import load_spec

MAX_COMPARED = 2_000
"""How many lines of the file are searched for a similar one."""


class EditFileArguments(msgspec.Struct, frozen=True):
    path: str
    old: str
    new: str
    all: bool = False


class EditFileTool:
    repeatable = False
    spec = load_spec(
        "edit_file",
        {
            "path": {"type": "string", "description": "The file; relative to the working folder, `~` is expanded."},
            "old": {"type": "string", "description": "The passage to replace, exactly as it is in the file."},
            "new": {"type": "string", "description": "The text to put in its place."},
            "all": {"type": "boolean", "description": "Replace every occurrence."},
        },
        ("path", "old", "new"),
    )

    def __init__(self, editor: FileEditor) -> None:
        self._editor = editor

    def risk(self, arguments: dict[str, object], context: ToolContext) -> tuple[Finding, ...]:
        return self._editor.risk(msgspec.convert(arguments, EditFileArguments).path, context)

    def effect(self, arguments: dict[str, object], context: ToolContext) -> Effect:
        return "edit"

    async def run(self, arguments: dict[str, object], context: ToolContext) -> ToolOutput:
        parsed = msgspec.convert(arguments, EditFileArguments)
        return await self._editor.change(
            parsed.path, context, lambda before, name: _plan(before, parsed, name), action="edited"
        )

    async def preview(self, arguments: dict[str, object], context: ToolContext) -> Preview:
        parsed = msgspec.convert(arguments, EditFileArguments)
        return await self._editor.preview(parsed.path, context, lambda before, name: _plan(before, parsed, name))


def _plan(before: FileSnapshot, parsed: EditFileArguments, name: str) -> FileChange:
    text = before.text()
    changed, count = replace_passage(text, parsed.old, parsed.new, every=parsed.all, name=name)
    times = "" if count == 1 else f", {count} times"
    return FileChange(text, changed, before, f"edited {name}{times}\n{short_diff(text, changed, name)}")


def replace_passage(text: str, old: str, new: str, *, every: bool, name: str) -> tuple[str, int]:
    """The text with the passage replaced, and how often. Raises Invalid if it does not occur, or more than once."""
    if not old:
        raise Invalid("`old` is empty; give the passage to replace, or use write_file")
    if old == new:
        raise Invalid("`old` and `new` are the same; nothing would change")
    if "\r\n" in text and text.count("\r\n") == text.count("\n"):
        # Models write plain line feeds; a file that has only Windows line ends keeps them.
        old, new = _with_windows_line_ends(old), _with_windows_line_ends(new)
    count = text.count(old)
    if not count:
        raise Invalid(f"`old` was not found in {name}{_suggest_line(text, old)}")
    if count > 1 and not every:
        lines = ", ".join(str(line) for line in _find_lines(text, old))
        raise Invalid(f"`old` occurs {count} times in {name} (lines {lines}); include more context, or set `all`")
    return text.replace(old, new), count


def _with_windows_line_ends(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\n", "\r\n")


def _find_lines(text: str, old: str) -> list[int]:
    """The line numbers of the first ten occurrences."""
    lines: list[int] = []
    at = text.find(old)
    while at >= 0 and len(lines) < 10:
        lines.append(text.count("\n", 0, at) + 1)
        at = text.find(old, at + len(old))
    return lines


def _suggest_line(text: str, old: str) -> str:
    """A hint at the line that the model may have meant."""
    first = next((line.strip() for line in old.splitlines() if line.strip()), "")
    lines = text.splitlines()[:MAX_COMPARED]
    for number, line in enumerate(lines, start=1):
        if first and first == line.strip():
            return f"; line {number} starts the same, but the text differs, perhaps in whitespace: {line[:200]!r}"
    similar = difflib.get_close_matches(first[:200], [line.strip()[:200] for line in lines], n=1)
    if not similar:
        return "; read the file again"
    number = next(number for number, line in enumerate(lines, start=1) if line.strip()[:200] == similar[0])
    return f"; the most similar line is {number}: {similar[0]!r}"
