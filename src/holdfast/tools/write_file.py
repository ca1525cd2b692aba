"""Writing whole files, so that a crash leaves the old text or the new."""

import os
from pathlib import Path

import msgspec

from holdfast.model.counted import counted
from holdfast.model.errors import Invalid
from holdfast.model.tool import Output, Scene
from holdfast.tools.describe import spec
from holdfast.tools.paths import regular
from holdfast.tools.writing import Writing, diff, read, replace


class Asked(msgspec.Struct, frozen=True):
    path: str
    content: str


class WriteFile:
    repeatable = False
    spec = spec(
        "write_file",
        {
            "path": {"type": "string", "description": "The file; relative to the working folder, `~` is understood."},
            "content": {"type": "string", "description": "All that the file shall hold."},
        },
        ("path", "content"),
    )

    def __init__(self, writing: Writing) -> None:
        self._writing = writing

    def risk(self, arguments: dict[str, object]) -> str | None:
        return self._writing.risk(msgspec.convert(arguments, Asked).path)

    async def run(self, arguments: dict[str, object], scene: Scene) -> Output:
        asked = msgspec.convert(arguments, Asked)
        return await self._writing.change(
            asked.path, scene, lambda path, name: _write(path, asked.content, name), deed="written"
        )


def _write(path: Path, content: str, name: str) -> str:
    lines = content.count("\n") + (not content.endswith("\n") and content != "")
    if not os.path.lexists(path):
        replace(path, content, None)
        return f"created {name} with {counted(lines, 'line')}"
    before = regular(path)
    try:
        old, _ = read(path)
    except Invalid:
        old = None
    replace(path, content, before)
    if old is None:
        return f"overwrote {name}, {before.st_size:,} bytes of no text or too long to compare, with {counted(lines, 'line')}"
    return f"overwrote {name} with {counted(lines, 'line')}\n{diff(old, content, name)}"
