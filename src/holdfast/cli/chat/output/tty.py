"""The terminal, which can be closed at any moment: from then on output is discarded without errors."""

import sys
import termios
from typing import TextIO

from prompt_toolkit.output.color_depth import ColorDepth
from prompt_toolkit.output.vt100 import Vt100_Output


class Tty:
    """Standard output of the chat. Writing to a closed terminal sets `is_gone` instead of raising."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self.encoding = stream.encoding
        self.is_gone = False

    @property
    def buffer(self) -> "Tty":
        return self

    def write(self, data: str | bytes) -> int:
        raw = data.encode("utf-8", "replace") if isinstance(data, str) else data
        try:
            if not self.is_gone:
                self._stream.buffer.write(raw)
        except OSError:
            self.is_gone = True
        return len(data)

    def flush(self) -> None:
        try:
            if not self.is_gone:
                self._stream.buffer.flush()
        except OSError:
            self.is_gone = True

    def isatty(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._stream.fileno()


def output_on(tty: Tty, term: str | None) -> Vt100_Output:
    """The output for prompt_toolkit: with the terminal's colours, or none with NO_COLOR."""
    output = Vt100_Output.from_pty(tty, term, ColorDepth.from_env())  # type: ignore[arg-type] # it has every method that is used
    output.enable_cpr = False  # the cursor position is not needed
    return output


class TerminalModes:
    """The terminal modes at the start, to restore them before an immediate exit."""

    def __init__(self) -> None:
        self._before = termios.tcgetattr(sys.stdin)

    def restore(self) -> None:
        try:
            termios.tcsetattr(sys.stdin, termios.TCSANOW, self._before)
        except termios.error:  # the terminal was closed
            return
