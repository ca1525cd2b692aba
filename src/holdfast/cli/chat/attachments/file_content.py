"""Reads a file that the user attaches: text exactly as it is, or an image. Other files are refused by name."""

import base64
import os
import stat
from pathlib import Path

import msgspec

from holdfast.model.attachment import header
from holdfast.model.errors import Invalid
from holdfast.model.finding import summary
from holdfast.model.image_format import image_size, image_type
from holdfast.model.message import Content, Image, Text
from holdfast.model.text import counted
from holdfast.tools.home_guard import is_protected
from holdfast.tools.paths import real_path
from holdfast.tools.read_file import MAX_IMAGE_BYTES, SNIFF_BYTES
from holdfast.tools.safe_open import open_for_reading
from holdfast.tools.sensitive_paths import why_secret

MAX_TEXT_BYTES = 256 * 1024
"""About 65,000 tokens: half of a usual context window."""


class FileText(msgspec.Struct, frozen=True):
    """The text of a file. Bytes that are not UTF-8 are surrogates."""

    text: str
    size: int

    @property
    def facts(self) -> str:
        lines = self.text.count("\n") + (not self.text.endswith("\n") and bool(self.text))
        note = "" if self.text.isascii() or not _has_surrogates(self.text) else ", not valid UTF-8"
        return f"{counted(lines, 'line')}, {counted(self.size, 'byte')}{note}"


def check_readable(path: Path, name: str, home: Path) -> None:
    """Raise Invalid for files of Holdfast itself and files with secrets: the agent may read those only with approval."""
    if is_protected(path, home, ()):
        raise Invalid(f"{name} belongs to Holdfast itself and cannot be attached")
    if findings := why_secret(str(real_path(path)), home):
        raise Invalid(f"{name} is not attached ({summary(findings)}); ask the agent to read it, and approve that")


def read_attachment(path: Path, name: str, home: Path) -> tuple[Content, ...]:
    """The parts for a file. Raises Invalid for a file that cannot be attached."""
    check_readable(path, name, home)
    content = read_bytes(path, name)
    if media_type := image_type(content):
        return image_parts(content, media_type, name)
    found = decode(content, name)
    return (Text(f"{header('file', name, found.facts)}\n{found.text}"),)


def image_parts(content: bytes, media_type: str, name: str) -> tuple[Content, ...]:
    """An image with a line that names it."""
    if len(content) > MAX_IMAGE_BYTES:
        raise Invalid(f"{name} is an image of {len(content):,} bytes; the limit is {MAX_IMAGE_BYTES:,}")
    width, height = image_size(content) or (0, 0)
    facts = f"{media_type}, {width}×{height}, {counted(len(content), 'byte')}"
    data = base64.b64encode(content).decode("ascii")
    return (Text(header("image", name, facts)), Image(f"data:{media_type};base64,{data}", media_type))


def read_bytes(path: Path, name: str, limit: int = MAX_TEXT_BYTES) -> bytes:
    """The content of a regular file within the limit; an image may have up to the limit of images."""
    try:
        with open_for_reading(path) as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise Invalid(f"{name} is not a regular file and cannot be attached")
            start = file.read(SNIFF_BYTES)
            allowed = MAX_IMAGE_BYTES if image_type(start) else limit
            if b"\0" in start and not image_type(start):
                raise Invalid(_binary(name, status.st_size))
            content = start + file.read(allowed + 1 - len(start))
    except OSError as e:
        raise Invalid(f"{name} cannot be read: {e.strerror}") from e
    if len(content) > allowed:
        size = max(status.st_size, len(content))
        raise Invalid(f"{name} has {size:,} bytes; the limit is {allowed:,}. Ask the agent to read the part you need")
    return content


def decode(content: bytes, name: str) -> FileText:
    """The text. Raises Invalid for a binary file."""
    if b"\0" in content:
        raise Invalid(_binary(name, len(content)))
    return FileText(content.decode("utf-8", "surrogateescape"), len(content))


def _binary(name: str, size: int) -> str:
    return f"{name} is a binary file of {size:,} bytes; only text and PNG, JPEG, GIF and WebP images can be attached"


def _has_surrogates(text: str) -> bool:
    return any("\ud800" <= character <= "\udfff" for character in text)
