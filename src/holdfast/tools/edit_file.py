"""Changing a passage of a file by naming it exactly."""

import difflib
from pathlib import Path

import msgspec

from holdfast.model.errors import Invalid
from holdfast.model.tool import Output, Scene
from holdfast.tools.describe import spec
from holdfast.tools.writing import Writing, diff, read, replace

MAX_COMPARED = 2_000
"""Of how many lines the nearest is looked for."""


class Asked(msgspec.Struct, frozen=True):
    path: str
    old: str
    new: str
    all: bool = False


class EditFile:
    repeatable = False
    spec = spec(
        "edit_file",
        {
            "path": {"type": "string", "description": "The file; relative to the working folder, `~` is understood."},
            "old": {"type": "string", "description": "The passage to replace, exactly as it stands in the file."},
            "new": {"type": "string", "description": "What shall stand there instead."},
            "all": {"type": "boolean", "description": "Replace every such passage, not just the only one."},
        },
        ("path", "old", "new"),
    )

    def __init__(self, writing: Writing) -> None:
        self._writing = writing

    def risk(self, arguments: dict[str, object]) -> str | None:
        return self._writing.risk(msgspec.convert(arguments, Asked).path)

    async def run(self, arguments: dict[str, object], scene: Scene) -> Output:
        asked = msgspec.convert(arguments, Asked)
        return await self._writing.change(asked.path, scene, lambda path, name: _edit(path, asked, name), deed="edited")


def _edit(path: Path, asked: Asked, name: str) -> str:
    text, before = read(path)
    changed, count = edited(text, asked.old, asked.new, every=asked.all, name=name)
    replace(path, changed, before)
    times = "" if count == 1 else f", {count} times"
    return f"edited {name}{times}\n{diff(text, changed, name)}"


def edited(text: str, old: str, new: str, *, every: bool, name: str) -> tuple[str, int]:
    """The text with the passage replaced, and how often. Raises Invalid if it is not there or not the only one."""
    if not old:
        raise Invalid("`old` is empty; name the passage to replace, or use write_file")
    if old == new:
        raise Invalid("`old` and `new` are the same; nothing would change")
    if "\r\n" in text and text.count("\r\n") == text.count("\n"):
        # Models write plain line feeds; a file that has only Windows line ends keeps them.
        old, new = _windows(old), _windows(new)
    count = text.count(old)
    if not count:
        raise Invalid(f"the passage is not in {name}{_nearest(text, old)}")
    if count > 1 and not every:
        lines = ", ".join(str(line) for line in _places(text, old))
        raise Invalid(f"the passage is in {name} {count} times (lines {lines}); name more of it, or set `all`")
    return text.replace(old, new), count


def _windows(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\n", "\r\n")


def _places(text: str, old: str) -> list[int]:
    """The lines of the first few passages."""
    lines: list[int] = []
    at = text.find(old)
    while at >= 0 and len(lines) < 10:
        lines.append(text.count("\n", 0, at) + 1)
        at = text.find(old, at + len(old))
    return lines


def _nearest(text: str, old: str) -> str:
    """A hint at the line the model may have meant."""
    first = next((line.strip() for line in old.splitlines() if line.strip()), "")
    lines = text.splitlines()[:MAX_COMPARED]
    for number, line in enumerate(lines, start=1):
        if first and first == line.strip():
            return f"; line {number} begins alike but something differs there, perhaps in the spaces: {line[:200]!r}"
    near = difflib.get_close_matches(first[:200], [line.strip()[:200] for line in lines], n=1)
    if not near:
        return "; read the file again"
    number = next(number for number, line in enumerate(lines, start=1) if line.strip()[:200] == near[0])
    return f"; the nearest is line {number}: {near[0]!r}"
