"""Reads the keyboard. Large pastes are collected in pieces, so that the cost stays linear."""

import select
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

from prompt_toolkit.input import Input
from prompt_toolkit.input.vt100 import Vt100Input
from prompt_toolkit.key_binding import KeyPress
from prompt_toolkit.keys import Keys

BEGIN, END = "\x1b[200~", "\x1b[201~"
CHUNK = 65_536


class Keyboard(Vt100Input):
    """Handles pastes itself, and leaves other keys to its parent."""

    _pieces: list[str] | None = None
    """The pieces of the current paste; None outside a paste."""
    _begun = ""
    """The partial paste marker at the end of the last read. The parser has it as well, since it may be keys."""
    _is_typed_ahead = False
    """Whether the next read starts with keys typed before the input line existed."""

    def raw_mode(self) -> AbstractContextManager[None]:
        return self._noting_typed_ahead()

    @contextmanager
    def _noting_typed_ahead(self) -> Iterator[None]:
        with super().raw_mode():
            self._is_typed_ahead = bool(select.select([self.fileno()], [], [], 0)[0])
            yield

    def read_keys(self) -> list[KeyPress]:
        data = self.stdin_reader.read(CHUNK)
        if self._is_typed_ahead:  # before raw mode the terminal translated Enter to a newline
            data, self._is_typed_ahead = data.replace("\n", "\r"), False
        while data:
            data = self._paste(data) if self._pieces is not None else self._press(data)
        keys, self._buffer = self._buffer, []
        return keys

    def _press(self, data: str) -> str:
        """Parse the keys before the next paste; returns the rest."""
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
        """Collect up to the end of the paste; returns the rest."""
        assert self._pieces is not None
        # The end marker may have started in the previous piece.
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


def copy_input(source: Input) -> Input:
    """The same keyboard for another application, with its own parser, so that a partial key does not go to the first one."""
    return Keyboard(source.stdin) if isinstance(source, Keyboard) else source


def _beginning(text: str) -> str:
    """The part of the marker that the text ends with."""
    return next((BEGIN[:size] for size in range(len(BEGIN) - 1, 0, -1) if text.endswith(BEGIN[:size])), "")
