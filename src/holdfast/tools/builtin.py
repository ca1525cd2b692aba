"""Creates the tools that come with Holdfast."""

import shutil
from collections.abc import Mapping
from pathlib import Path

from holdfast.model.tool import Tool
from holdfast.tools.atomic_replace import FileEditor
from holdfast.tools.backends.registry import Backends
from holdfast.tools.command_snapshots import CommandSnapshots
from holdfast.tools.edit_file import EditFileTool
from holdfast.tools.read_file import ReadFileTool
from holdfast.tools.search_files import SearchFilesTool
from holdfast.tools.terminal import Recording, StartBackground, TerminalTool
from holdfast.tools.write_file import WriteFileTool


def builtin_tools(
    environment: Mapping[str, str],
    *,
    home: Path | None = None,
    start_background: StartBackground | None = None,
    recording: Recording | None = None,
    backends: Backends | None = None,
    snapshots: CommandSnapshots | None = None,
) -> list[Tool]:
    """The terminal and the file tools. `home` is Holdfast's own directory, which they refuse to use."""
    editor = FileEditor(home=home, backends=backends)
    return [
        TerminalTool(
            environment,
            home=home,
            start_background=start_background,
            recording=recording,
            backends=backends,
            snapshots=snapshots,
        ),
        ReadFileTool(home=home, backends=backends),
        WriteFileTool(editor),
        EditFileTool(editor),
        SearchFilesTool(ripgrep=shutil.which("rg", path=environment.get("PATH")), home=home, backends=backends),
    ]
