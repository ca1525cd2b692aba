"""Escape sequences that show an image in a terminal, and which of them a terminal understands.

The environment names the terminal. It is not queried: its answer would arrive between the keys that the user presses.
In tmux and screen nothing is shown, because they do not pass the sequences on.
"""

import base64
from collections.abc import Callable, Mapping
from typing import Literal

from holdfast.cli.chat.output.png_pixels import decode_png
from holdfast.cli.chat.output.sixel import encode_sixel
from holdfast.model.image_format import PNG, image_size, image_type

Protocol = Literal["kitty", "iterm2", "sixel"]
KITTY_TERMS = ("xterm-kitty", "xterm-ghostty")
ITERM_PROGRAMS = ("iTerm.app", "WezTerm")
SIXEL_TERMS = ("foot", "mlterm", "contour", "yaft")
MULTIPLEXERS = ("screen", "tmux")
KITTY_CHUNK = 4096
CELL = (10, 20)
"""The assumed size of a character in pixels."""
MAX_COLUMNS, MAX_ROWS = 60, 20


def choose_protocol(chosen: Protocol | Literal["auto", "off"], environment: Mapping[str, str]) -> Protocol | None:
    """The protocol of the setting; None to show no images."""
    if chosen == "auto":
        return detect_protocol(environment)
    return None if chosen == "off" else chosen


def detect_protocol(environment: Mapping[str, str]) -> Protocol | None:
    """The protocol of the terminal that the environment names; None if it names none that is known to have one."""
    term, program = environment.get("TERM", ""), environment.get("TERM_PROGRAM", "")
    if term.startswith(MULTIPLEXERS) or environment.get("TMUX") or environment.get("STY"):
        return None
    if term in KITTY_TERMS:
        return "kitty"
    if program in ITERM_PROGRAMS or environment.get("LC_TERMINAL") == "iTerm2":
        return "iterm2"
    return "sixel" if term.partition("-")[0] in SIXEL_TERMS else None


def encode_image(content: bytes, protocol: Protocol, columns: int) -> str | None:
    """The sequence that shows the image, at most that wide; None if the terminal cannot show an image of this kind."""
    size = image_size(content)
    if size is None:
        return None
    return ENCODERS[protocol](content, _fit(size, columns))


def _fit(size: tuple[int, int], columns: int) -> int:
    """The width in characters: small images are not enlarged, high ones are narrower."""
    width, height = size
    high = MAX_ROWS * CELL[1] * width // (height * CELL[0])
    return max(1, min(columns, MAX_COLUMNS, high, -(-width // CELL[0])))


def _kitty(content: bytes, columns: int) -> str | None:
    """https://sw.kovidgoyal.net/kitty/graphics-protocol/. It decodes only PNG; `q=2` forbids answers."""
    if image_type(content) != PNG:
        return None
    data = base64.b64encode(content).decode("ascii")
    chunks = [data[start : start + KITTY_CHUNK] for start in range(0, len(data), KITTY_CHUNK)]
    pieces = []
    for number, chunk in enumerate(chunks):
        keys = f"a=T,f=100,c={columns},q=2," if number == 0 else ""
        pieces.append(f"\x1b_G{keys}m={int(number < len(chunks) - 1)};{chunk}\x1b\\")
    return "".join(pieces)


def _iterm2(content: bytes, columns: int) -> str:
    """https://iterm2.com/documentation-images.html."""
    data = base64.b64encode(content).decode("ascii")
    return f"\x1b]1337;File=size={len(content)};width={columns};preserveAspectRatio=1;inline=1:{data}\a"


def _sixel(content: bytes, columns: int) -> str | None:
    if image_type(content) != PNG:
        return None
    image = decode_png(content, columns * CELL[0], MAX_ROWS * CELL[1])
    return None if image is None else encode_sixel(image)


ENCODERS: dict[Protocol, Callable[[bytes, int], str | None]] = {"kitty": _kitty, "iterm2": _iterm2, "sixel": _sixel}
