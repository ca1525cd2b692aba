"""Recognizes images by their content: the format and the size in pixels. A label or a file name proves nothing."""

import struct

PNG = "image/png"
JPEG = "image/jpeg"
GIF = "image/gif"
WEBP = "image/webp"
IMAGE_TYPES = (PNG, JPEG, GIF, WEBP)
"""The types that every provider accepts."""
EXTENSIONS = {PNG: ".png", JPEG: ".jpg", GIF: ".gif", WEBP: ".webp"}
PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"
NO_SIZE_MARKERS = frozenset({0x01, *range(0xD0, 0xD9)})
"""Markers of JPEG without a length."""
SIZE_MARKERS = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
"""Markers of JPEG that begin a frame header, which has the size."""


def image_type(content: bytes) -> str | None:
    """The media type; None for anything that is not a PNG, JPEG, GIF or WebP. The first 12 bytes are enough."""
    if content.startswith(PNG_SIGNATURE):
        return PNG
    if content.startswith(b"\xff\xd8\xff"):
        return JPEG
    if content.startswith((b"GIF87a", b"GIF89a")):
        return GIF
    if content.startswith(b"RIFF") and content[8:12] == b"WEBP":
        return WEBP
    return None


def image_size(content: bytes) -> tuple[int, int] | None:
    """Width and height in pixels; None if the header is damaged or incomplete."""
    try:
        match image_type(content):
            case "image/png":
                size = struct.unpack_from(">II", content, 16) if content[12:16] == b"IHDR" else (0, 0)
            case "image/gif":
                size = struct.unpack_from("<HH", content, 6)
            case "image/jpeg":
                size = _jpeg_size(content)
            case "image/webp":
                size = _webp_size(content)
            case _:
                return None
    except (struct.error, IndexError):
        return None
    width, height = size
    return (width, height) if width and height else None


def _jpeg_size(content: bytes) -> tuple[int, int]:
    place = 2
    while True:
        while content[place] == 0xFF and content[place + 1] == 0xFF:  # fill bytes
            place += 1
        marker = content[place + 1]
        if content[place] != 0xFF:
            return 0, 0
        if marker in SIZE_MARKERS:
            height, width = struct.unpack_from(">HH", content, place + 5)
            return width, height
        (length,) = (0,) if marker in NO_SIZE_MARKERS else struct.unpack_from(">H", content, place + 2)
        place += 2 + length


def _webp_size(content: bytes) -> tuple[int, int]:
    match content[12:16]:
        case b"VP8 ":
            width, height = struct.unpack_from("<HH", content, 26)
            return width & 0x3FFF, height & 0x3FFF
        case b"VP8L":
            (packed,) = struct.unpack_from("<I", content, 21)
            return (packed & 0x3FFF) + 1, (packed >> 14 & 0x3FFF) + 1
        case b"VP8X":
            width = int.from_bytes(content[24:27], "little") + 1
            height = int.from_bytes(content[27:30], "little") + 1
            return (width, height) if len(content) >= 30 else (0, 0)
        case _:
            return 0, 0
