"""Pictures and files of a message as a vendor can be shown them.

A picture or file that a vendor would refuse would make every later request of the session fail, so each is
looked at before it is sent: what it is by its first bytes, not by its label.
"""

import base64
import binascii
import re
from urllib.parse import unquote_to_bytes

import msgspec

from holdfast.model.message import File, Image
from holdfast.providers.wire import clean

MAX_PICTURE_CHARACTERS = 5 * 1024 * 1024
"""The largest picture in base64; the smallest of the vendors' limits."""

MAX_FILE_CHARACTERS = 20 * 1024 * 1024
"""The largest file in base64; a whole request may not exceed 32 MB."""

_link = re.compile(r"https?://[^\s\"<>\\^`{|}]+", re.IGNORECASE)
_data = re.compile(r"data:([^;,]*)((?:;[^;,]*)*),", re.IGNORECASE)


class Inline(msgspec.Struct, frozen=True):
    """Content that travels in the request. `base64` holds `content`."""

    media_type: str
    base64: str
    content: bytes


def picture(part: Image) -> Inline | str | None:
    """The picture in the request, or its address, or None if no vendor would take it."""
    if is_link(part.url):
        return part.url
    found = inline(part.url, MAX_PICTURE_CHARACTERS)
    kind = _picture_type(found.content) if found else None
    return Inline(kind, found.base64, found.content) if found and kind else None


def document(part: File) -> Inline | None:
    """A PDF that travels in the request, if it is one."""
    found = inline(part.url, MAX_FILE_CHARACTERS)
    return found if found and found.content.startswith(b"%PDF-") else None


def text_file(part: File) -> str | None:
    """The words of a file that holds text, under its name."""
    found = inline(part.url, MAX_FILE_CHARACTERS)
    if found is None or b"\0" in found.content:
        return None
    try:
        words = found.content.decode("utf-8")
    except UnicodeDecodeError:
        return None
    return f"[file {name_of(part)}]\n{words}"


def note(part: Image | File) -> str:
    """What the model reads in place of something it cannot be shown."""
    kind = "picture" if isinstance(part, Image) else "file"
    return f"[a {kind} that cannot be shown here: {name_of(part)}]"


def name_of(part: Image | File) -> str:
    named = part.name if isinstance(part, File) else ""
    address = "" if part.url[:5].lower() == "data:" else part.url
    return clean(named or address or part.media_type or "without a name")[:200]


def is_link(url: str) -> bool:
    return url.isascii() and url.isprintable() and _link.fullmatch(url) is not None


def inline(url: str, max_characters: int) -> Inline | None:
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
    return Inline(head[1].lower(), written, content) if fits else None


def _picture_type(content: bytes) -> str | None:
    if content.startswith(b"\x89PNG\r\n\x1a\n"):
        return "image/png"
    if content.startswith(b"\xff\xd8\xff"):
        return "image/jpeg"
    if content.startswith((b"GIF87a", b"GIF89a")):
        return "image/gif"
    if content.startswith(b"RIFF") and content[8:12] == b"WEBP":
        return "image/webp"
    return None
