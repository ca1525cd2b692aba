"""The person's terminal, which may go away at any moment: from then on nothing is drawn, and nothing breaks."""

import sys
import termios
from typing import TextIO

from prompt_toolkit.output.color_depth import ColorDepth
from prompt_toolkit.output.vt100 import Vt100_Output


class Tty:
    """Standard output for a program that draws. Writing to a terminal that was closed is noted, not raised."""

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
    """How the terminal is drawn on: with its own colours, or none if NO_COLOR asks for that."""
    output = Vt100_Output.from_pty(tty, term, ColorDepth.from_env())  # type: ignore[arg-type] # it has all that is used
    output.enable_cpr = False  # nothing here needs to know where the cursor is
    return output


class Modes:
    """How the terminal was before it was drawn on, for a way out that asks nobody."""

    def __init__(self) -> None:
        self._before = termios.tcgetattr(sys.stdin)

    def restore(self) -> None:
        try:
            termios.tcsetattr(sys.stdin, termios.TCSANOW, self._before)
        except termios.error:  # the terminal is gone: there is nothing to restore
            return
