"""Reading files a page at a time, whatever their size; pictures come back as pictures."""

import asyncio
import base64
import os
import stat
from pathlib import Path
from typing import BinaryIO

import msgspec

from holdfast.model.counted import counted
from holdfast.model.errors import Invalid
from holdfast.model.message import Image
from holdfast.model.tool import Output, Scene
from holdfast.tools.describe import spec
from holdfast.tools.paths import existing, regular, resolve
from holdfast.tools.sensitive import check_target, why_secret

DEFAULT_LINES = 2_000
MAX_LINE_CHARS = 2_000
MAX_LINE_BYTES = 4 * MAX_LINE_CHARS
PAGE_CHARS = 100_000
SNIFF_BYTES = 8_192
MAX_IMAGE_BYTES = 5 * 1024 * 1024
MAX_LISTED = 200
PICTURES = (
    (b"\x89PNG\r\n\x1a\n", 0, "image/png"),
    (b"\xff\xd8\xff", 0, "image/jpeg"),
    (b"GIF8", 0, "image/gif"),
    (b"WEBP", 8, "image/webp"),
)


class Asked(msgspec.Struct, frozen=True):
    path: str
    offset: int = 1
    limit: int = DEFAULT_LINES


class ReadFile:
    repeatable = True
    spec = spec(
        "read_file",
        {
            "path": {"type": "string", "description": "The file; relative to the working folder, `~` is understood."},
            "offset": {"type": "integer", "minimum": 1, "description": "The first line to show; 1 if not given."},
            "limit": {"type": "integer", "minimum": 1, "description": f"How many lines; {DEFAULT_LINES} if not given."},
        },
        ("path",),
    )

    def __init__(self, *, home: Path | None = None) -> None:
        self._home = home

    def risk(self, arguments: dict[str, object]) -> str | None:
        return why_secret(msgspec.convert(arguments, Asked).path, self._home)

    async def run(self, arguments: dict[str, object], scene: Scene) -> Output:
        asked = msgspec.convert(arguments, Asked)
        try:
            return await asyncio.to_thread(self._read, asked, scene)
        except Invalid as e:
            return Output.say(str(e), ok=False)
        except OSError as e:
            return Output.say(f"{asked.path} cannot be read: {e.strerror}", ok=False)

    def _read(self, asked: Asked, scene: Scene) -> Output:
        path = resolve(asked.path, scene.workdir)
        if not why_secret(asked.path, self._home):
            check_target(Path(os.path.realpath(path)), why_secret, self._home)
        if stat.S_ISDIR(existing(path).st_mode):
            return Output.say(_listing(path), ok=False)
        size = regular(path).st_size
        with path.open("rb") as file:
            start = file.read(SNIFF_BYTES)
            if media_type := _picture(start):
                return _image(path, media_type, size)
            if b"\0" in start:
                raise Invalid(f"{path} is a binary file of {size:,} bytes; look at it with a program in the terminal")
            file.seek(0)
            return Output.say(_page(file, asked, path))


def _picture(start: bytes) -> str | None:
    return next((kind for mark, place, kind in PICTURES if start[place : place + len(mark)] == mark), None)


def _image(path: Path, media_type: str, size: int) -> Output:
    if size > MAX_IMAGE_BYTES:
        raise Invalid(f"{path} is a picture of {size:,} bytes; only up to {MAX_IMAGE_BYTES:,} can be shown")
    data = base64.b64encode(path.read_bytes()).decode("ascii")
    return Output(parts=(Image(f"data:{media_type};base64,{data}", media_type),))


def _page(file: BinaryIO, asked: Asked, path: Path) -> str:
    shown: list[str] = []
    number, room = 0, PAGE_CHARS
    while (line := _line(file)) is not None:
        number += 1
        if number < asked.offset:
            continue
        if len(shown) == asked.limit or room <= 0:
            return "\n".join([*shown, f"[there is more; go on with offset={number}]"])
        shown.append(f"{number:6}\t{line}")
        room -= len(shown[-1])
    if not number:
        return f"{path} is empty"
    if not shown:
        raise Invalid(f"{path} has only {counted(number, 'line')}")
    return "\n".join(shown)


def _line(file: BinaryIO) -> str | None:
    """The next line, cut if it is long; None at the end. Never holds more of it than is shown."""
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
        return f"{text[:MAX_LINE_CHARS]} [… the rest of this line is left out]"
    return text


def _listing(path: Path) -> str:
    names = sorted(entry.name + "/" * entry.is_dir() for entry in path.iterdir())
    more = f"\n[… and {len(names) - MAX_LISTED:,} more]" if len(names) > MAX_LISTED else ""
    return f"{path} is a folder. It holds:\n" + "\n".join(names[:MAX_LISTED]) + more
