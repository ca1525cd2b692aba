"""Loads the images that a call of `make_image` names: files, and images that the user attached."""

import base64
import re
from pathlib import Path
from typing import BinaryIO

from holdfast.model.errors import Invalid
from holdfast.model.event import UserSaid
from holdfast.model.image_format import EXTENSIONS, GIF, PNG, image_size, image_type
from holdfast.model.image_service import ImageContent
from holdfast.model.message import Image
from holdfast.model.session import standing
from holdfast.model.tool import ToolContext
from holdfast.store.database import Transaction
from holdfast.store.repos import log, sessions
from holdfast.tools.backends.files import BackendFiles
from holdfast.tools.backends.port import TerminalBackend
from holdfast.tools.home_guard import check_read, open_checked
from holdfast.tools.paths import stat_file

ATTACHED = re.compile(r"attached:([1-9][0-9]?)")
MAX_BYTES = 20 * 1024 * 1024
MAX_MASK_BYTES = 4 * 1024 * 1024
"""The limit of OpenAI."""
SEARCHED_EVENTS = 500
"""How far back a message with images is looked for."""


def is_attached(name: str) -> bool:
    return ATTACHED.fullmatch(name) is not None


def list_attached(tx: Transaction, session_id: str) -> tuple[str, ...]:
    """The URLs of the images in the newest message of the user that has any."""
    entries = log.read_tail(tx, sessions.get(tx, session_id), SEARCHED_EVENTS)
    for entry in reversed(standing(entries)):
        if isinstance(entry.event, UserSaid):
            urls = tuple(part.url for part in entry.event.parts if isinstance(part, Image))
            if urls:
                return urls
    return ()


def load_attached(name: str, urls: tuple[str, ...]) -> ImageContent:
    """An image that the user attached. Raises Invalid."""
    found = ATTACHED.fullmatch(name)
    assert found is not None, "is_attached was asked first"
    number = int(found[1])
    if number > len(urls):
        have = f"the newest one with images has {len(urls)}" if urls else "no message of the user has images"
        raise Invalid(f"there is no image {name}: {have}")
    url = urls[number - 1]
    head, comma, data = url.partition(",")
    if not head.startswith("data:") or not head.endswith(";base64") or not comma:
        raise Invalid(f"{name} is a link, not a file: download it first, and give its path")
    try:
        return _checked(base64.b64decode(data, validate=True), name)
    except ValueError as e:
        raise Invalid(f"{name} is damaged") from e


def load_file(named: str, context: ToolContext, home: Path | None) -> ImageContent:
    """An image in a file that the session may read. Raises Invalid or OSError."""
    path = check_read(named, context, home)
    stat_file(path)
    with open_checked(named, context, home) as file:
        return _checked(_read(file, str(path)), str(path), path.name)


async def load_from(backend: TerminalBackend, named: str, context: ToolContext, home: Path | None) -> ImageContent:
    """As `load_file`, of a file that a program in the backend reads: the session may have no access to it here."""
    files = BackendFiles(backend, context)
    path, size = await files.locate(named, lambda: check_read(named, context, home))
    if size > MAX_BYTES:
        raise Invalid(f"{path} has more than {MAX_BYTES:,} bytes")
    return _checked(await files.read(path, MAX_BYTES), str(path), path.name)


def check_mask(mask: ImageContent, first: ImageContent) -> None:
    """Raise Invalid if the mask does not fit the first input."""
    if mask.media_type != PNG:
        raise Invalid(f"the mask must be a PNG, not {mask.media_type}")
    if len(mask.content) > MAX_MASK_BYTES:
        raise Invalid(f"the mask has {len(mask.content):,} bytes; the limit is {MAX_MASK_BYTES:,}")
    ours, theirs = image_size(mask.content), image_size(first.content)
    if ours != theirs:
        raise Invalid(
            f"the mask must have the size of the first input: it has {_size(ours)}, the input {_size(theirs)}"
        )


def _read(file: BinaryIO, name: str) -> bytes:
    content = file.read(MAX_BYTES + 1)
    if len(content) > MAX_BYTES:
        raise Invalid(f"{name} has more than {MAX_BYTES:,} bytes")
    return content


def _checked(content: bytes, name: str, file_name: str = "") -> ImageContent:
    media_type = image_type(content)
    if media_type is None or media_type == GIF or image_size(content) is None:
        raise Invalid(f"{name} is not a PNG, JPEG or WebP image")
    plain = file_name or name.replace(":", "-")
    known = plain.lower().endswith((EXTENSIONS[media_type], ".jpeg"))
    return ImageContent(media_type, content, plain if known else plain + EXTENSIONS[media_type])


def _size(size: tuple[int, int] | None) -> str:
    return "an unknown size" if size is None else f"{size[0]}x{size[1]}"
