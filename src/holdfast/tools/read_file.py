"""Reads files of any size one page at a time; images are returned as images."""

import asyncio
import base64
import stat
from io import BytesIO
from pathlib import Path
from typing import BinaryIO

import msgspec

from holdfast.model.errors import Invalid, Unavailable
from holdfast.model.finding import Finding
from holdfast.model.image_format import image_type
from holdfast.model.message import Image
from holdfast.model.text import counted
from holdfast.model.tool import ToolContext, ToolOutput
from holdfast.tools.backends.files import BackendFiles
from holdfast.tools.backends.port import TerminalBackend
from holdfast.tools.backends.registry import Backends, only_local
from holdfast.tools.file_snapshot import MAX_READ_BYTES
from holdfast.tools.home_guard import check_read, find_read_risks, open_checked
from holdfast.tools.paths import stat_file, stat_path
from holdfast.tools.spec import load_spec

DEFAULT_LINES = 2_000
MAX_LINE_CHARS = 2_000
MAX_LINE_BYTES = 4 * MAX_LINE_CHARS
PAGE_CHARS = 100_000
SNIFF_BYTES = 8_192
MAX_IMAGE_BYTES = 5 * 1024 * 1024
MAX_LISTED = 200


class ReadFileArguments(msgspec.Struct, frozen=True):
    path: str
    offset: int = 1
    limit: int = DEFAULT_LINES


class ReadFileTool:
    repeatable = True
    spec = load_spec(
        "read_file",
        {
            "path": {"type": "string", "description": "The file; relative to the working folder, `~` is expanded."},
            "offset": {"type": "integer", "minimum": 1, "description": "The first line to show; default 1."},
            "limit": {
                "type": "integer",
                "minimum": 1,
                "description": f"Maximum number of lines; default {DEFAULT_LINES}.",
            },
        },
        ("path",),
    )

    def __init__(self, *, home: Path | None = None, backends: Backends | None = None) -> None:
        self._home = home
        self._backends = backends or only_local()

    def risk(self, arguments: dict[str, object], context: ToolContext) -> tuple[Finding, ...]:
        return find_read_risks(msgspec.convert(arguments, ReadFileArguments).path, context, self._home)

    async def run(self, arguments: dict[str, object], context: ToolContext) -> ToolOutput:
        parsed = msgspec.convert(arguments, ReadFileArguments)
        try:
            backend = self._backends.of(context)
            if not backend.is_direct:
                return await self._read_inside(backend, parsed, context)
            return await asyncio.to_thread(self._read, parsed, context)
        except (Invalid, Unavailable) as e:
            return ToolOutput.say(str(e), ok=False)
        except OSError as e:
            return ToolOutput.say(f"{parsed.path} cannot be read: {e.strerror}", ok=False)

    def _read(self, parsed: ReadFileArguments, context: ToolContext) -> ToolOutput:
        path = check_read(parsed.path, context, self._home)
        if stat.S_ISDIR(stat_path(path).st_mode):
            return ToolOutput.say(_list_folder(path), ok=False)
        size = stat_file(path).st_size
        with open_checked(parsed.path, context, self._home) as file:
            return _show(file, parsed, path, size)

    async def _read_inside(
        self, backend: TerminalBackend, parsed: ReadFileArguments, context: ToolContext
    ) -> ToolOutput:
        """As `_read`, by programs that run in the backend."""
        files = BackendFiles(backend, context)
        path = await files.resolve(parsed.path)
        if backend.shares_files:
            await asyncio.to_thread(check_read, parsed.path, context, self._home)
        kind, size = await files.stat(path)
        if kind == "folder":
            return ToolOutput.say(_listing(path, sorted(await files.list_folder(path))), ok=False)
        if kind != "file":
            raise Invalid(f"{path} does not exist" if kind == "missing" else f"{path} is not a regular file")
        return _show(BytesIO(await files.read(path, MAX_READ_BYTES)), parsed, path, size)


def _show(file: BinaryIO, parsed: ReadFileArguments, path: Path, size: int) -> ToolOutput:
    """A page of the text, or the image."""
    start = file.read(SNIFF_BYTES)
    file.seek(0)
    if media_type := image_type(start):
        return _image(file, path, media_type, size)
    if b"\0" in start:
        raise Invalid(f"{path} is a binary file of {size:,} bytes; inspect it with a program in the terminal")
    return ToolOutput.say(format_page(file, parsed, path))


def _image(file: BinaryIO, path: Path, media_type: str, size: int) -> ToolOutput:
    if size > MAX_IMAGE_BYTES:
        raise Invalid(f"{path} is an image of {size:,} bytes; the limit is {MAX_IMAGE_BYTES:,}")
    data = base64.b64encode(file.read()).decode("ascii")
    return ToolOutput(parts=(Image(f"data:{media_type};base64,{data}", media_type),))


def format_page(file: BinaryIO, parsed: ReadFileArguments, path: Path) -> str:
    """The lines that the arguments ask for, with their numbers. Raises Invalid if there are not so many."""
    shown: list[str] = []
    number, room = 0, PAGE_CHARS
    while (line := _read_line(file)) is not None:
        number += 1
        if number < parsed.offset:
            continue
        if len(shown) == parsed.limit or room <= 0:
            return "\n".join([*shown, f"[more lines follow; continue with offset={number}]"])
        shown.append(f"{number:6}\t{line}")
        room -= len(shown[-1])
    if not number:
        return f"{path} is empty"
    if not shown:
        raise Invalid(f"{path} has only {counted(number, 'line')}")
    return "\n".join(shown)


def _read_line(file: BinaryIO) -> str | None:
    """The next line, truncated if it is long; None at the end. Never keeps more of it in memory than is shown."""
    start = file.readline(MAX_LINE_BYTES)
    if not start:
        return None
    left_out = 0
    part = start
    while part and not part.endswith(b"\n"):
        part = file.readline(MAX_LINE_BYTES)
        left_out += len(part)
    text = start.decode("utf-8", "surrogateescape").removesuffix("\n").removesuffix("\r")
    if left_out or len(text) > MAX_LINE_CHARS:
        return f"{text[:MAX_LINE_CHARS]} [… the rest of this line is omitted]"
    return text


def _list_folder(path: Path) -> str:
    return _listing(path, sorted(entry.name + "/" * entry.is_dir() for entry in path.iterdir()))


def _listing(path: Path, names: list[str]) -> str:
    more = f"\n[… and {len(names) - MAX_LISTED:,} more]" if len(names) > MAX_LISTED else ""
    return f"{path} is a folder. It contains:\n" + "\n".join(names[:MAX_LISTED]) + more
