"""Reads the keyboard. A paste of megabytes is collected in pieces, so that its cost grows with its length and no faster."""

import select
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

from prompt_toolkit.input.vt100 import Vt100Input
from prompt_toolkit.key_binding import KeyPress
from prompt_toolkit.keys import Keys

BEGIN, END = "\x1b[200~", "\x1b[201~"
CHUNK = 65_536


class Keyboard(Vt100Input):
    """As its parent; only pastes take another way."""

    _pieces: list[str] | None = None
    """What has been pasted so far; None while nothing is being pasted."""
    _begun = ""
    """The beginning of a mark that the last read ended with. The parser has it too: it may be keys."""
    _is_typed_ahead = False
    """Whether the next read begins with what was typed before there was a line to type into."""

    def raw_mode(self) -> AbstractContextManager[None]:
        return self._noting_what_waits()

    @contextmanager
    def _noting_what_waits(self) -> Iterator[None]:
        with super().raw_mode():
            self._is_typed_ahead = bool(select.select([self.fileno()], [], [], 0)[0])
            yield

    def read_keys(self) -> list[KeyPress]:
        data = self.stdin_reader.read(CHUNK)
        if self._is_typed_ahead:  # until now the terminal has turned Enter into the end of a line
            data, self._is_typed_ahead = data.replace("\n", "\r"), False
        while data:
            data = self._paste(data) if self._pieces is not None else self._press(data)
        keys, self._buffer = self._buffer, []
        return keys

    def _press(self, data: str) -> str:
        """Parse what comes before the next paste; what is left."""
        begun, self._begun = self._begun, ""
        if begun and (begun + data).startswith(BEGIN):
            self.vt100_parser.reset()
            self._pieces = []
            return (begun + data)[len(BEGIN) :]
        before, mark, rest = data.partition(BEGIN)
        self.vt100_parser.feed(before)
        if mark:
            self._pieces = []
        else:
            self._begun = _beginning(begun + before)
        return rest

    def flush_keys(self) -> list[KeyPress]:
        self._begun = ""
        return super().flush_keys()

    def _paste(self, data: str) -> str:
        """Collect up to the end of the paste; what is left."""
        assert self._pieces is not None
        # The end mark may have begun in the piece before.
        begun = self._pieces.pop() if self._pieces and len(self._pieces[-1]) < len(END) else ""
        if not begun and self._pieces:
            last = self._pieces[-1]
            self._pieces[-1], begun = last[: -len(END)], last[-len(END) :]
        pasted, mark, rest = (begun + data).partition(END)
        self._pieces.append(pasted)
        if mark:
            self._buffer.append(KeyPress(Keys.BracketedPaste, "".join(self._pieces)))
            self._pieces = None
        return rest


def _beginning(text: str) -> str:
    """What of the mark the text ends with."""
    return next((BEGIN[:size] for size in range(len(BEGIN) - 1, 0, -1) if text.endswith(BEGIN[:size])), "")
