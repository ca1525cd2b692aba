"""Encodes a form with files as `multipart/form-data` (RFC 7578)."""

import re
import secrets
from collections.abc import Sequence
from typing import Protocol

import msgspec

UNSAFE = re.compile(r'[^\w.\- ]|["\\]')


class FormFile(Protocol):
    """A file of a form: an image or a recording."""

    @property
    def name(self) -> str: ...
    @property
    def media_type(self) -> str: ...
    @property
    def content(self) -> bytes: ...


class EncodedForm(msgspec.Struct, frozen=True):
    content_type: str
    chunks: list[bytes]
    """The body in pieces, so that large files are not copied."""


def encode_form(fields: Sequence[tuple[str, str | FormFile]]) -> EncodedForm:
    """Encode the fields in the given order. The boundary is random, so that no file can contain it."""
    boundary = f"holdfast-{secrets.token_hex(16)}"
    chunks: list[bytes] = []
    for name, value in fields:
        head = f'--{boundary}\r\ncontent-disposition: form-data; name="{name}"'
        if isinstance(value, str):
            chunks.append(f"{head}\r\n\r\n{value}\r\n".encode("utf-8", "replace"))
        else:
            file = f'{head}; filename="{_file_name(value.name)}"\r\ncontent-type: {value.media_type}\r\n\r\n'
            chunks += [file.encode("ascii"), value.content, b"\r\n"]
    chunks.append(f"--{boundary}--\r\n".encode("ascii"))
    return EncodedForm(f"multipart/form-data; boundary={boundary}", chunks)


def _file_name(name: str) -> str:
    """A name without characters that servers encode in different ways."""
    plain = UNSAFE.sub("_", name).encode("ascii", "replace").decode("ascii").replace("?", "_")
    return plain[-100:] or "file"
