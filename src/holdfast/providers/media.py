"""Prepares the images and files of a message for a provider.

An image or file that a provider rejects would make every later request of the session fail. So each is checked
before it is sent; its type is determined from its first bytes, not from its label.
"""

import base64
import binascii
import re
from urllib.parse import unquote_to_bytes

import msgspec

from holdfast.model.image_format import image_type
from holdfast.model.message import Content, File, Image, Text
from holdfast.providers.sanitize import clean

MAX_IMAGE_CHARACTERS = 5 * 1024 * 1024
"""The largest image in base64: the lowest of the providers' limits."""

MAX_FILE_CHARACTERS = 20 * 1024 * 1024
"""The largest file in base64; a whole request is limited to 32 MB."""

_link = re.compile(r"https?://[^\s\"<>\\^`{|}]+", re.IGNORECASE)
_data = re.compile(r"data:([^;,]*)((?:;[^;,]*)*),", re.IGNORECASE)


class InlineContent(msgspec.Struct, frozen=True):
    """Content that is sent in the request. `base64` is `content` encoded."""

    media_type: str
    base64: str
    content: bytes


def load_image(part: Image) -> InlineContent | str | None:
    """The decoded image, or its URL, or None if providers would reject it."""
    if is_link(part.url):
        return part.url
    found = decode_data_url(part.url, MAX_IMAGE_CHARACTERS)
    kind = image_type(found.content) if found else None
    return InlineContent(kind, found.base64, found.content) if found and kind else None


def load_pdf(part: File) -> InlineContent | None:
    """The file's content if it is a PDF in a data URL."""
    found = decode_data_url(part.url, MAX_FILE_CHARACTERS)
    return found if found and found.content.startswith(b"%PDF-") else None


def load_text_file(part: File) -> str | None:
    """The name and content of a text file; None for any other file."""
    found = decode_data_url(part.url, MAX_FILE_CHARACTERS)
    if found is None or b"\0" in found.content:
        return None
    try:
        text = found.content.decode("utf-8")
    except UnicodeDecodeError:
        return None
    return f"[file {display_name(part)}]\n{text}"


def text_of(part: Content) -> str:
    """The text that stands for a part."""
    if isinstance(part, Text):
        return part.text
    return (load_text_file(part) if isinstance(part, File) else None) or placeholder(part)


def placeholder(part: Image | File) -> str:
    """The text for the model in place of content that cannot be sent."""
    kind = "image" if isinstance(part, Image) else "file"
    return f"[{kind} that cannot be shown here: {display_name(part)}]"


def display_name(part: Image | File) -> str:
    named = part.name if isinstance(part, File) else ""
    address = "" if part.url[:5].lower() == "data:" else part.url
    return clean(named or address or part.media_type or "unnamed")[:200]


def is_link(url: str) -> bool:
    return url.isascii() and url.isprintable() and _link.fullmatch(url) is not None


def decode_data_url(url: str, max_characters: int) -> InlineContent | None:
    """The content of a data URL; None for any other URL, and for one that is malformed or too large."""
    head = _data.match(url)
    if head is None or len(url) - head.end() > max_characters:
        return None
    try:
        if head[2].lower().endswith(";base64"):
            content = binascii.a2b_base64(url[head.end() :], strict_mode=True)
        else:
            content = unquote_to_bytes(url[head.end() :])
    except ValueError:
        return None
    written = base64.b64encode(content).decode("ascii")
    fits = content and len(written) <= max_characters
    return InlineContent(head[1].lower(), written, content) if fits else None
