"""Creates the tools that come with Holdfast."""

import shutil
from collections.abc import Mapping
from pathlib import Path

from holdfast.model.tool import Tool
from holdfast.tools.atomic_replace import FileEditor
from holdfast.tools.edit_file import EditFileTool
from holdfast.tools.read_file import ReadFileTool
from holdfast.tools.sandbox import Sandbox
from holdfast.tools.search_files import SearchFilesTool
from holdfast.tools.terminal import Recording, StartBackground, TerminalTool
from holdfast.tools.write_file import WriteFileTool


def builtin_tools(
    environment: Mapping[str, str],
    *,
    home: Path | None = None,
    start_background: StartBackground | None = None,
    recording: Recording | None = None,
    sandbox: Sandbox | None = None,
) -> list[Tool]:
    """The terminal and the file tools. `home` is Holdfast's own directory, which they refuse to use."""
    editor = FileEditor(home=home)
    return [
        TerminalTool(environment, home=home, start_background=start_background, recording=recording, sandbox=sandbox),
        ReadFileTool(home=home),
        WriteFileTool(editor),
        EditFileTool(editor),
        SearchFilesTool(ripgrep=shutil.which("rg", path=environment.get("PATH")), home=home, sandbox=sandbox),
    ]
