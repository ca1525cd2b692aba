"""Writes whole files atomically."""

import os
from pathlib import Path

import msgspec

from holdfast.model.errors import Invalid
from holdfast.model.finding import Finding
from holdfast.model.text import counted
from holdfast.model.tool import Preview, ToolContext, ToolOutput
from holdfast.tools.atomic_replace import FileChange, FileEditor, read_text, short_diff
from holdfast.tools.paths import stat_file
from holdfast.tools.spec import load_spec


class WriteFileArguments(msgspec.Struct, frozen=True):
    path: str
    content: str


class WriteFileTool:
    repeatable = False
    spec = load_spec(
        "write_file",
        {
            "path": {"type": "string", "description": "The file; relative to the working folder, `~` is expanded."},
            "content": {"type": "string", "description": "The complete content of the file."},
        },
        ("path", "content"),
    )

    def __init__(self, editor: FileEditor) -> None:
        self._editor = editor

    def risk(self, arguments: dict[str, object], context: ToolContext) -> tuple[Finding, ...]:
        return self._editor.risk(msgspec.convert(arguments, WriteFileArguments).path, context)

    async def run(self, arguments: dict[str, object], context: ToolContext) -> ToolOutput:
        parsed = msgspec.convert(arguments, WriteFileArguments)
        return await self._editor.change(
            parsed.path, context, lambda path, name: _plan(path, parsed.content, name), action="written"
        )

    async def preview(self, arguments: dict[str, object], context: ToolContext) -> Preview:
        parsed = msgspec.convert(arguments, WriteFileArguments)
        return await self._editor.preview(parsed.path, context, lambda path, name: _plan(path, parsed.content, name))


def _plan(path: Path, content: str, name: str) -> FileChange:
    lines = content.count("\n") + (not content.endswith("\n") and content != "")
    if not os.path.lexists(path):
        return FileChange(None, content, None, f"created {name} with {counted(lines, 'line')}")
    before = stat_file(path)
    try:
        old, _ = read_text(path)
    except Invalid:
        old = None
    if old is None:
        report = f"overwrote {name}, {before.st_size:,} bytes (binary or too large to compare), with {counted(lines, 'line')}"
    else:
        report = f"overwrote {name} with {counted(lines, 'line')}\n{short_diff(old, content, name)}"
    return FileChange(old, content, before, report)
