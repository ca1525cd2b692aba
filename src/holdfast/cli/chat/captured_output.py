"""The output of a terminal program as plain text: without escape sequences, overwritten lines and most of a long middle. Pure."""

import re

from holdfast.model.terminal_text import plain_text

FIRST_BYTES, LAST_BYTES = 16 * 1024, 48 * 1024
FULL_SCREEN = re.compile(rb"\x1b\[\?(?:1049|1047|47)h")
"""How an editor or a pager switches to the alternate screen."""


class CapturedOutput:
    """Keeps the beginning and the end of what a program writes."""

    def __init__(self) -> None:
        self._first = bytearray()
        self._last = bytearray()
        self._size = 0

    def feed(self, data: bytes) -> None:
        self._size += len(data)
        room = FIRST_BYTES - len(self._first)
        self._first += data[: max(room, 0)]
        self._last += data[max(room, 0) :]
        if len(self._last) > 2 * LAST_BYTES:
            del self._last[:-LAST_BYTES]

    @property
    def is_full_screen(self) -> bool:
        """Whether the program drew on the whole screen, so that its output is no text."""
        return FULL_SCREEN.search(self._first) is not None or FULL_SCREEN.search(self._last) is not None

    def text(self) -> str:
        last = self._last[-LAST_BYTES:]
        left_out = self._size - len(self._first) - len(last)
        middle = f"\n[… {left_out:,} bytes omitted …]\n" if left_out else ""
        return plain_text(self._first) + middle + plain_text(last)
