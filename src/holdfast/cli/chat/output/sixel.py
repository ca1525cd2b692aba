"""Encodes pixels as sixels, the bitmaps of DEC terminals: https://vt100.net/docs/vt3xx-gp/chapter14.html."""

from itertools import groupby

from holdfast.cli.chat.output.png_pixels import PixelImage

BEGIN = "\x1bP0;1;0q"
"""Pixels that are not painted keep the background."""
END = "\x1b\\"
BAND = 6
"""Rows that one character covers."""
LEVELS = 6
"""Steps of each colour: 216 colours, and terminals have at least 256."""
ORDER = (0, 8, 2, 10, 12, 4, 14, 6, 3, 11, 1, 9, 15, 7, 13, 5)
"""Thresholds of 4x4 pixels for ordered dithering."""
VISIBLE = 128
"""The alpha from which a pixel is painted."""
BLANK = -1


def encode_sixel(image: PixelImage) -> str:
    colors = [_quantized_row(image, number) for number in range(image.height)]
    used = sorted({color for row in colors for color in row} - {BLANK})
    bands = [_encode_band(colors[start : start + BAND]) for start in range(0, image.height, BAND)]
    size = f'"1;1;{image.width};{image.height}'
    return f"{BEGIN}{size}{''.join(map(_define, used))}{'-'.join(bands)}{END}"


def _quantized_row(image: PixelImage, number: int) -> list[int]:
    """The numbers of the colours of a row; BLANK where it is transparent."""
    found = []
    for column, (*color, alpha) in enumerate(image.rows[number]):
        threshold = ORDER[4 * (number % 4) + column % 4] * 16 + 8
        red, green, blue = ((value * (LEVELS - 1) + threshold) // 256 for value in color)
        found.append((red * LEVELS + green) * LEVELS + blue if alpha >= VISIBLE else BLANK)
    return found


def _define(color: int) -> str:
    """Define a colour: its parts are percentages."""
    parts = (color // LEVELS**2, color // LEVELS % LEVELS, color % LEVELS)
    return "#{};2;{};{};{}".format(color, *(part * 100 // (LEVELS - 1) for part in parts))


def _encode_band(rows: list[list[int]]) -> str:
    """Up to six rows, one colour after the other; each returns to the start of the band."""
    masks: dict[int, list[int]] = {}
    for bit, row in enumerate(rows):
        for column, color in enumerate(row):
            if color != BLANK:
                masks.setdefault(color, [0] * len(row))[column] |= 1 << bit
    return "$".join(f"#{color}{_compressed(masks[color])}" for color in sorted(masks))


def _compressed(mask: list[int]) -> str:
    """The characters, repeated ones as a count. Blank ones at the end are left out."""
    runs = [(chr(63 + bits), len(list(same))) for bits, same in groupby(mask)]
    if runs[-1][0] == "?":
        runs.pop()
    return "".join(sign * count if count < 4 else f"!{count}{sign}" for sign, count in runs)
