"""What commands print: JSON, tables, marked text and progress. Colours and boxes are for terminals only.

Stored text goes through `visible`: what a model or a tool wrote never steers the terminal.
"""

import os
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
    """A table: in a terminal cut to its width, else whole and aligned. `stretch` is the column that gives way."""
    cells = [[one_line(cell) for cell in row] for row in rows]
    if not sys.stdout.isatty():
        return _plain(columns, cells)
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    shown = Table(box=None, pad_edge=False, header_style="bold")
    for number, column in enumerate(columns):
        shown.add_column(column, no_wrap=True, overflow="ellipsis", ratio=1 if number == stretch else None)
    for row in cells:
        shown.add_row(*(Text(cell) for cell in row))
    console = Console(highlight=False)
    with console.capture() as captured:
        console.print(shown)
    return out(captured.get(), end="")


def _plain(columns: Sequence[str], cells: Sequence[Sequence[str]]) -> None:
    widths = [max(map(len, column)) for column in zip(columns, *cells, strict=True)]
    for row in (columns, *cells):
        out("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


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
    if not sys.stderr.isatty():
        yield lambda done, total: None
        return
    bar = _Bar(what)
    try:
        yield bar.update
    finally:
        bar.close()


class _Bar:
    WIDTH = 30

    def __init__(self, what: str) -> None:
        self.what = what
        self._since = time.monotonic()
        self._shown = ""

    def update(self, done: int, total: int) -> None:
        if time.monotonic() - self._since < PATIENCE_SECONDS:
            return
        share = min(done / total, 1) if total else 1
        line = f"{self.what} {'█' * round(share * self.WIDTH):░<{self.WIDTH}} {share:4.0%}"
        if line != self._shown:
            self._shown = line
            print(f"\r\x1b[K{line}", end="", file=sys.stderr, flush=True)

    def close(self) -> None:
        if self._shown:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)


@contextmanager
def stages() -> Iterator[Callable[[str, int, int], None]]:
    """As `progress`, for work that says itself what it is doing."""
    with progress("") as update:
        bar = getattr(update, "__self__", None)

        def tell(stage: str, done: int, total: int) -> None:
            if isinstance(bar, _Bar):
                bar.what = stage
            update(done, total)

        yield tell
