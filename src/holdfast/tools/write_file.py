"""Writes whole files atomically."""

import msgspec

from holdfast.model.errors import Invalid
from holdfast.model.finding import Finding
from holdfast.model.text import counted
from holdfast.model.tool import Effect, Preview, ToolContext, ToolOutput
from holdfast.tools.atomic_replace import FileChange, FileEditor, short_diff
from holdfast.tools.file_snapshot import FileSnapshot
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

    def effect(self, arguments: dict[str, object], context: ToolContext) -> Effect:
        return "edit"

    async def run(self, arguments: dict[str, object], context: ToolContext) -> ToolOutput:
        parsed = msgspec.convert(arguments, WriteFileArguments)
        return await self._editor.change(
            parsed.path, context, lambda before, name: _plan(before, parsed.content, name), action="written"
        )

    async def preview(self, arguments: dict[str, object], context: ToolContext) -> Preview:
        parsed = msgspec.convert(arguments, WriteFileArguments)
        return await self._editor.preview(
            parsed.path, context, lambda before, name: _plan(before, parsed.content, name)
        )


def _plan(before: FileSnapshot, content: str, name: str) -> FileChange:
    lines = content.count("\n") + (not content.endswith("\n") and content != "")
    if before.size is None:
        return FileChange(None, content, before, f"created {name} with {counted(lines, 'line')}")
    try:
        old = before.text()
    except Invalid:
        old = None
    if old is None:
        report = (
            f"overwrote {name}, {before.size:,} bytes (binary or too large to compare), with {counted(lines, 'line')}"
        )
    else:
        report = f"overwrote {name} with {counted(lines, 'line')}\n{short_diff(old, content, name)}"
    return FileChange(old, content, before, report)
