"""What commands print: JSON, tables, marked text and progress. Colours and boxes are for terminals only.

Stored text goes through `visible`: what a model or a tool wrote never steers the terminal.
"""

import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from holdfast.interop import shapes
from holdfast.interop.visible import one_line, visible
from holdfast.model.times import moment
from holdfast.store import private

Update = Callable[[int, int], None]
Mark = tuple[int, int]
PATIENCE_SECONDS = 0.5
"""How long work may take before a progress bar appears."""


def out(text: str, *, end: str = "\n") -> None:
    """Print to standard output. What cannot be printed is not passed off as printed: raises NotSaved."""
    try:
        sys.stdout.write(text + end)
    except BrokenPipeError:
        raise
    except OSError as e:
        give_up()
        raise private.translate(e, "standard output") from e


def flush() -> None:
    """Make sure that what was printed has left; see `out`."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as e:
        give_up()
        raise private.translate(e, "standard output") from e


def give_up() -> None:
    """Stop printing: nobody reads, or nothing can be written. Python would complain once more at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def document(value: object) -> None:
    out(shapes.dump(value, indent=2 if sys.stdout.isatty() else None))


def day(at: int) -> str:
    """An instant in the person's own time zone."""
    return f"{moment(at).astimezone():%Y-%m-%d %H:%M}"


def size(count: int) -> str:
    value = float(count)
    for unit in ("bytes", "KB", "MB"):
        if value < 1000:
            return f"{value:.0f} {unit}" if unit == "bytes" else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.1f} GB"


def table(columns: Sequence[str], rows: Sequence[Sequence[str]], *, stretch: int) -> None:
    """A table: in a terminal cut to its width, else whole. `stretch` is the column that gives way, and only that one."""
    cells = [list(columns), *([one_line(cell) for cell in row] for row in rows)]
    if sys.stdout.isatty():
        others = sum(max(map(wide, column)) + 2 for n, column in enumerate(zip(*cells, strict=True)) if n != stretch)
        room = max(shutil.get_terminal_size().columns - others, 10)
        for row in cells:
            row[stretch] = cut(row[stretch], room)
    widths = [max(map(wide, column)) for column in zip(*cells, strict=True)]
    for number, row in enumerate(cells):
        line = "  ".join(cell + " " * (width - wide(cell)) for cell, width in zip(row, widths, strict=True)).rstrip()
        out(line if number else strong(line))


def wide(text: str) -> int:
    """How many columns of a terminal the text takes: a Chinese character takes two, an accent none."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def cut(text: str, room: int) -> str:
    if wide(text) <= room:
        return text
    while wide(text) >= room:
        text = text[: -max(1, (wide(text) - room) // 2)]
    return text.rstrip() + "…"


def strong(text: str) -> str:
    return f"\x1b[1m{text}\x1b[0m" if sys.stdout.isatty() else text


def faint(text: str) -> str:
    return f"\x1b[2m{text}\x1b[0m" if sys.stdout.isatty() else text


def marked(text: str, marks: Sequence[Mark]) -> str:
    """The text on one line with the marked places brought out."""
    pieces, at = [], 0
    for start, end in marks:
        pieces += [_flat(text[at:start]), strong(_flat(text[start:end]))]
        at = end
    return "".join([*pieces, _flat(text[at:])])


def _flat(text: str) -> str:
    return visible(text.replace("\n", " ").replace("\t", " "))


@contextmanager
def progress(what: str) -> Iterator[Update]:
    """A bar on standard error, if that is a terminal and the work takes a while."""
    with _bar() as bar:
        yield lambda done, total: bar.update(what, done, total)


@contextmanager
def stages() -> Iterator[Callable[[str, int, int], None]]:
    """As `progress`, for work that says itself what it is doing."""
    with _bar() as bar:
        yield bar.update


@contextmanager
def _bar() -> "Iterator[_Bar]":
    bar = _Bar()
    try:
        yield bar
    finally:
        bar.close()


class _Bar:
    WIDTH = 30

    def __init__(self) -> None:
        self._is_wanted = sys.stderr.isatty()
        self._since = time.monotonic()
        self._shown = ""

    def update(self, what: str, done: int, total: int) -> None:
        if not self._is_wanted or time.monotonic() - self._since < PATIENCE_SECONDS:
            return
        share = min(done / total, 1) if total else 1
        line = f"{what} {'█' * round(share * self.WIDTH):░<{self.WIDTH}} {share:4.0%}"
        if line != self._shown:
            self._shown = line
            print(f"\r\x1b[K{line}", end="", file=sys.stderr, flush=True)

    def close(self) -> None:
        if self._shown:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
