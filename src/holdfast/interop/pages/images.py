"""Reads the images of messages: only types that cannot run scripts, recognized by their content."""

import base64
import binascii
from pathlib import Path

from holdfast.interop.pages.transcript import EMBEDDABLE
from holdfast.model.entry import Entry
from holdfast.model.errors import NotFound
from holdfast.model.event import ModelSaid, ToolEnded, UserSaid
from holdfast.model.image_format import image_type
from holdfast.model.message import Image
from holdfast.store import session_files


def read_image(home: Path, session_id: str, entry: Entry, number: int) -> tuple[bytes, str]:
    """The content and media type of the image that is part `number` of an event. Raises NotFound."""
    event = entry.event
    parts = event.parts if isinstance(event, UserSaid | ModelSaid | ToolEnded) else ()
    part = parts[number] if number < len(parts) else None
    if not isinstance(part, Image):
        raise NotFound("image not found")
    data = _read(part.url, home, session_id)
    media_type = image_type(data)
    if media_type is None:
        raise NotFound("this image type cannot be shown")
    return data, media_type


def _read(url: str, home: Path, session_id: str) -> bytes:
    if EMBEDDABLE.match(url):
        try:
            return base64.b64decode(url.partition(",")[2], validate=False)
        except binascii.Error as e:
            raise NotFound("the image is damaged") from e
    with session_files.open_file(home, session_id, url.removeprefix("file:")) as file:
        return file.read()
