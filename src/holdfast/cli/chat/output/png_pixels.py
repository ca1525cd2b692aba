"""Decodes PNG images to pixels, scaled down, for terminals that cannot decode them.

Supports what image services produce: 8 bits per channel, not interlaced. Nothing larger than a small screen is kept.
"""

import struct
import zlib
from collections.abc import Iterator

import msgspec

from holdfast.model.image_format import PNG_SIGNATURE

CHANNELS = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}
"""By colour type: grey, RGB, palette, grey and alpha, RGB and alpha."""
PALETTE = 3
MAX_PIXELS = 4_000_000
"""More would take many seconds."""
Pixel = tuple[int, int, int, int]


class PixelImage(msgspec.Struct, frozen=True):
    """Rows of pixels: red, green, blue, alpha."""

    width: int
    height: int
    rows: list[list[Pixel]]


class _PngHeader(msgspec.Struct, frozen=True):
    width: int
    height: int
    kind: int
    palette: bytes
    alphas: bytes

    @property
    def channels(self) -> int:
        return CHANNELS[self.kind]


def decode_png(content: bytes, max_width: int, max_height: int) -> PixelImage | None:
    """The image, not larger than that; None if it is damaged or of a kind that is not supported."""
    try:
        header, data = _parse(content)
        if header is None:
            return None
        factor = min(1.0, max_width / header.width, max_height / header.height)
        width, height = max(1, int(header.width * factor)), max(1, int(header.height * factor))
        wanted = {row * header.height // height for row in range(height)}
        columns = [column * header.width // width for column in range(width)]
        lines = _lines(data, header)
        rows = [[_pixel(line, at, header) for at in columns] for number, line in enumerate(lines) if number in wanted]
    except (struct.error, zlib.error, IndexError, ValueError):
        return None
    return PixelImage(width, height, rows) if len(rows) == height else None


def _parse(content: bytes) -> tuple[_PngHeader | None, bytes]:
    """The header, and the decompressed image data."""
    place, packed, palette, alphas = len(PNG_SIGNATURE), bytearray(), b"", b""
    head = struct.unpack_from(">IIBBBBB", content, 16)
    width, height, depth, kind, _, _, interlaced = head
    if depth != 8 or interlaced or kind not in CHANNELS or not 0 < width * height <= MAX_PIXELS:
        return None, b""
    while place + 8 <= len(content):
        length, name = struct.unpack_from(">I4s", content, place)
        body = content[place + 8 : place + 8 + length]
        packed += body if name == b"IDAT" else b""
        palette = body if name == b"PLTE" else palette
        alphas = body if name == b"tRNS" and kind == PALETTE else alphas
        place += length + 12
    header = _PngHeader(width, height, kind, palette, alphas)
    limit = height * (1 + width * header.channels)
    return header, zlib.decompressobj().decompress(bytes(packed), limit)


def _lines(data: bytes, header: _PngHeader) -> Iterator[bytearray]:
    """The rows with their filters undone: https://www.w3.org/TR/png-3/#9Filters."""
    length, step = header.width * header.channels, header.channels
    above = bytearray(length)
    for start in range(0, header.height * (length + 1), length + 1):
        line = bytearray(data[start + 1 : start + 1 + length])
        _undo_filter(data[start], line, above, step)
        yield line
        above = line


def _undo_filter(kind: int, line: bytearray, above: bytearray, step: int) -> None:
    match kind:
        case 1:
            for at in range(step, len(line)):
                line[at] = (line[at] + line[at - step]) & 255
        case 2:
            for at, up in enumerate(above):
                line[at] = (line[at] + up) & 255
        case 3:
            for at, up in enumerate(above):
                left = line[at - step] if at >= step else 0
                line[at] = (line[at] + (left + up) // 2) & 255
        case 4:
            _undo_paeth(line, above, step)


def _undo_paeth(line: bytearray, above: bytearray, step: int) -> None:
    for at, up in enumerate(above):
        left, corner = (line[at - step], above[at - step]) if at >= step else (0, 0)
        guess = left + up - corner
        to_left, to_up, to_corner = abs(guess - left), abs(guess - up), abs(guess - corner)
        nearest = left if to_left <= to_up and to_left <= to_corner else up if to_up <= to_corner else corner
        line[at] = (line[at] + nearest) & 255


def _pixel(line: bytearray, column: int, header: _PngHeader) -> Pixel:
    at = column * header.channels
    match header.kind:
        case 0:
            return line[at], line[at], line[at], 255
        case 2:
            return line[at], line[at + 1], line[at + 2], 255
        case 3:
            index = line[at]
            alpha = header.alphas[index] if index < len(header.alphas) else 255
            red, green, blue = header.palette[3 * index : 3 * index + 3] or (0, 0, 0)
            return red, green, blue, alpha
        case 4:
            return line[at], line[at], line[at], line[at + 1]
        case _:
            return line[at], line[at + 1], line[at + 2], line[at + 3]
