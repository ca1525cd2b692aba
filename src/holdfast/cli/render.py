"""Output of commands: JSON, tables and highlighted text. Colours are for terminals only.

Stored text goes through `visible`, so that text from a model or a tool cannot control the terminal.
"""

import os
import sys
from collections.abc import Sequence

from holdfast.interop import serialization
from holdfast.model.sanitize import one_line, visible
from holdfast.store import atomic_file

Mark = tuple[int, int]


def print_text(text: str, *, end: str = "\n") -> None:
    """Print to standard output. Raises NotSaved if it cannot be written."""
    try:
        sys.stdout.write(text + end)
    except BrokenPipeError:
        raise
    except OSError as e:
        discard_output()
        raise atomic_file.translate(e, "standard output") from e


def flush() -> None:
    """Flush standard output. Raises NotSaved if it cannot be written."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as e:
        discard_output()
        raise atomic_file.translate(e, "standard output") from e


def discard_output() -> None:
    """Redirect standard output to /dev/null after a failed write; otherwise Python fails again at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def print_json(value: object) -> None:
    print_text(serialization.dump(value, indent=2 if sys.stdout.isatty() else None))


def format_size(count: int) -> str:
    value = float(count)
    for unit in ("bytes", "KB", "MB"):
        if value < 1000:
            return f"{value:.0f} {unit}" if unit == "bytes" else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.1f} GB"


def print_table(columns: Sequence[str], rows: Sequence[Sequence[str]], *, stretch: int) -> None:
    """Print a table. In a terminal, only the column `stretch` is cut so that the table fits."""
    cells = [list(columns), *([one_line(cell) for cell in row] for row in rows)]
    if sys.stdout.isatty():
        fixed = sum(
            max(map(display_width, column)) + 2 for n, column in enumerate(zip(*cells, strict=True)) if n != stretch
        )
        import shutil  # it loads the compression libraries

        room = max(shutil.get_terminal_size().columns - fixed, 10)
        for row in cells:
            row[stretch] = truncate(row[stretch], room)
    widths = [max(map(display_width, column)) for column in zip(*cells, strict=True)]
    for number, row in enumerate(cells):
        line = "  ".join(
            cell + " " * (width - display_width(cell)) for cell, width in zip(row, widths, strict=True)
        ).rstrip()
        print_text(line if number else bold(line))


def display_width(text: str) -> int:
    """The width of a text in terminal columns: a Chinese character takes two, an accent none."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def truncate(text: str, room: int) -> str:
    if display_width(text) <= room:
        return text
    while display_width(text) >= room:
        text = text[: -max(1, (display_width(text) - room) // 2)]
    return text.rstrip() + "…"


def bold(text: str) -> str:
    return f"\x1b[1m{text}\x1b[0m" if sys.stdout.isatty() else text


def dim(text: str) -> str:
    return f"\x1b[2m{text}\x1b[0m" if sys.stdout.isatty() else text


def highlight(text: str, marks: Sequence[Mark]) -> str:
    """The text on one line, with the matches in bold."""
    pieces, at = [], 0
    for start, end in marks:
        pieces += [_flatten(text[at:start]), bold(_flatten(text[start:end]))]
        at = end
    return "".join([*pieces, _flatten(text[at:])])


def _flatten(text: str) -> str:
    return visible(text.replace("\n", " ").replace("\t", " "))
