"""Reads the keyboard. A paste of megabytes is collected in pieces, so that its cost grows with its length and no faster."""

from prompt_toolkit.input.vt100 import Vt100Input
from prompt_toolkit.key_binding import KeyPress
from prompt_toolkit.keys import Keys

BEGIN, END = "\x1b[200~", "\x1b[201~"
CHUNK = 65_536


class Keyboard(Vt100Input):
    """As its parent; only pastes take another way. A mark that is cut in two by a read takes the parent's."""

    _pieces: list[str] | None = None
    """What has been pasted so far; None while nothing is being pasted."""

    def read_keys(self) -> list[KeyPress]:
        data = self.stdin_reader.read(CHUNK)
        while data:
            data = self._paste(data) if self._pieces is not None else self._press(data)
        keys, self._buffer = self._buffer, []
        return keys

    def _press(self, data: str) -> str:
        """Parse what comes before the next paste; what is left."""
        before, mark, rest = data.partition(BEGIN)
        self.vt100_parser.feed(before)
        if mark:
            self._pieces = []
        return rest

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
