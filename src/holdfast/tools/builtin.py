"""The tools that come with Holdfast, wired together."""

import shutil
from collections.abc import Mapping
from pathlib import Path

from holdfast.model.tool import Tool
from holdfast.tools.edit_file import EditFile
from holdfast.tools.read_file import ReadFile
from holdfast.tools.search_files import SearchFiles
from holdfast.tools.terminal import StartBackground, Terminal
from holdfast.tools.write_file import WriteFile
from holdfast.tools.writing import Writing


def builtin(
    environment: Mapping[str, str],
    *,
    home: Path | None = None,
    start_background: StartBackground | None = None,
) -> list[Tool]:
    """The terminal and the file tools. `home` is Holdfast's own folder, which they touch only when a person agrees."""
    writing = Writing(home=home)
    return [
        Terminal(environment, home=home, start_background=start_background),
        ReadFile(home=home),
        WriteFile(writing),
        EditFile(writing),
        SearchFiles(ripgrep=shutil.which("rg", path=environment.get("PATH")), home=home),
    ]
