"""Reads and writes files inside a backend by running programs there: `sh`, `cat`, `head`, `ls`, `mv`, `wc`.

The scripts get paths as arguments, never as part of their text.
"""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from holdfast.model.errors import Invalid
from holdfast.model.tool import ToolContext
from holdfast.tools.backends.port import TerminalBackend
from holdfast.tools.file_snapshot import MAX_READ_BYTES, FileSnapshot
from holdfast.tools.paths import check_path_text, make_temporary_name

FileKind = Literal["file", "folder", "other", "missing"]
STAT = """
if [ -d "$1" ]; then echo folder; elif [ -f "$1" ]; then printf "file "; wc -c <"$1"
elif [ -e "$1" ] || [ -h "$1" ]; then echo other; else echo missing; fi
"""
REPLACE = """
target=$(readlink -f -- "$1") || target=$1
folder=$(dirname -- "$target") && mkdir -p -- "$folder" || exit
temporary=$folder/$2
trap 'rm -f -- "$temporary"' EXIT
if [ -e "$target" ]; then cp -p -- "$target" "$temporary" || exit; fi
cat >"$temporary" && mv -f -- "$temporary" "$target" || exit
sync "$folder" 2>/dev/null || :
"""


class BackendFiles:
    """The files of a backend, for one session."""

    def __init__(self, backend: TerminalBackend, context: ToolContext) -> None:
        self._backend = backend
        self._context = context

    async def resolve(self, named: str) -> Path:
        """The absolute path in the backend; a relative one starts in the working directory there. Raises Invalid."""
        check_path_text(named)
        await self._backend.prepare(self._context)
        if named == "~" or named.startswith("~/"):
            home = await self._run(["sh", "-c", 'printf %s "$HOME"'], named)
            return Path(home.decode("utf-8", "surrogateescape")) / named[2:]
        return self._backend.workdir(self._context) / named

    async def locate(self, named: str, check: Callable[[], object]) -> tuple[Path, int]:
        """The path and size of a regular file. `check` refuses a path if it names a file of this machine. Raises Invalid."""
        path = await self.resolve(named)
        if self._backend.shares_files:
            await asyncio.to_thread(check)
        kind, size = await self.stat(path)
        if kind != "file":
            raise Invalid(f"{path} does not exist" if kind == "missing" else f"{path} is not a regular file")
        return path, size

    async def stat(self, path: Path) -> tuple[FileKind, int]:
        """What is there, and the size of a file."""
        words = (await self._run(["sh", "-c", STAT, "holdfast", str(path)], str(path))).split()
        kind = words[0].decode("ascii")
        assert kind in ("file", "folder", "other", "missing"), kind
        return kind, int(words[1]) if len(words) > 1 else 0  # type: ignore[return-value] # the assertion checks it

    async def read(self, path: Path, limit: int) -> bytes:
        """The file up to a number of bytes. Raises Invalid if it cannot be read."""
        return await self._run(["head", "-c", str(limit), "--", str(path)], str(path))

    async def list_folder(self, path: Path) -> list[str]:
        """The names in a folder, those of folders with a slash."""
        output = await self._run(["ls", "-1Ap", "--", str(path)], str(path))
        return output.decode("utf-8", "surrogateescape").splitlines()

    async def snapshot(self, path: Path) -> FileSnapshot:
        """The present content of a file. Raises Invalid if it is no regular file."""
        kind, size = await self.stat(path)
        if kind == "missing":
            return FileSnapshot(path, problem=f"{path} does not exist")
        if kind != "file":
            raise Invalid(f"{path} is a folder, not a file" if kind == "folder" else f"{path} is not a regular file")
        if size > MAX_READ_BYTES:
            return FileSnapshot.too_large(path, size)
        return FileSnapshot(path, size, await self.read(path, MAX_READ_BYTES))

    async def replace(self, path: Path, data: bytes, before: FileSnapshot) -> None:
        """Replace the file, unless it has changed since the snapshot. Raises Invalid."""
        now = await self.snapshot(path)
        if (now.size, now.data) != (before.size, before.data):
            raise Invalid(f"{path} was changed by another program meanwhile; read it again")
        await self._run(["sh", "-c", REPLACE, "holdfast", str(path), make_temporary_name()], str(path), data)

    async def _run(self, words: list[str], name: str, data: bytes = b"") -> bytes:
        done = await self._backend.run(self._context, words, data)
        if done.code:
            raise Invalid(f"{name} cannot be used: {done.errors.splitlines()[-1] if done.errors else done.code}")
        return done.output
